package command

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress tells a waiting person what goes on: on a terminal in one line with the time, elsewhere in a line for each change.
type progress struct {
	out     io.Writer
	begin   time.Time
	mu      sync.Mutex
	text    string
	stopped chan struct{} // nil if out is no terminal
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

// show tells the state of what is waited for.
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

// tick keeps the time on a terminal up to date.
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

// end removes the line from a terminal.
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
