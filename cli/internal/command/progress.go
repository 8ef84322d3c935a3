package command

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress prints the state of a wait: on a terminal in one line with the elapsed time, elsewhere one line per change.
type progress struct {
	out     io.Writer
	begin   time.Time
	mu      sync.Mutex
	text    string
	stopped chan struct{} // nil if out is not a terminal
	drawing sync.WaitGroup
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, begin: time.Now()}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.stopped = make(chan struct{})
		p.drawing.Go(p.tick)
	}
	return p
}

// show prints the state if it changed.
func (p *progress) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.text {
		return
	}
	p.text = text
	if p.stopped == nil {
		_, _ = fmt.Fprintln(p.out, text)
		return
	}
	p.draw()
}

func (p *progress) draw() {
	if p.text != "" {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s (%s)", p.text, time.Since(p.begin).Round(time.Second))
	}
}

// tick updates the elapsed time on a terminal.
func (p *progress) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.stopped:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// end removes the line from the terminal.
func (p *progress) end() {
	if p.stopped == nil {
		return
	}
	close(p.stopped)
	p.drawing.Wait()
	if p.text != "" {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
	}
}
