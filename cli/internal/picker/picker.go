// Package picker lets the user browse workspaces on a terminal and choose one.
package picker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/kcplane/kcp/cli/internal/location"
)

// ErrCancelled is returned when the user chooses no workspace.
var ErrCancelled = errors.New("no workspace was chosen")

// Lister returns the names of the child workspaces of l.
type Lister func(l location.Location) ([]string, error)

// IsTerminal reports whether in and out are a terminal.
func IsTerminal(in io.Reader, out io.Writer) bool {
	i, inFile := in.(*os.File)
	o, outFile := out.(*os.File)
	return inFile && outFile && term.IsTerminal(int(i.Fd())) && term.IsTerminal(int(o.Fd()))
}

// Choose shows the workspaces below start on the terminal and returns the chosen one.
func Choose(in, out *os.File, start location.Location, list Lister) (location.Location, error) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return start, fmt.Errorf("switching the terminal to raw mode: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), state) }()
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || height < 6 || width < 10 {
		width, height = 80, 24
	}
	return choose(in, out, start, list, height-4, width-1)
}

// choose reads keys until a workspace is chosen. It shows up to rows workspaces at a time, each truncated to columns.
func choose(in io.Reader, out io.Writer, start location.Location, list Lister, rows, columns int) (location.Location, error) {
	b := &browser{list: list, rows: rows}
	if err := b.open(start); err != nil {
		return start, err
	}
	keys, drawn := bufio.NewReader(in), 0
	for {
		screen := b.screen()
		for i, line := range screen {
			screen[i] = line[:min(len(line), columns)]
		}
		erase(out, drawn)
		_, _ = io.WriteString(out, strings.Join(screen, "\r\n"))
		drawn = len(screen)
		k, err := read(keys)
		if err != nil {
			k = cancel
		}
		done, err := b.press(k)
		if done || err != nil {
			erase(out, drawn)
			return b.chosen(), err
		}
	}
}

// erase removes the last lines on the screen. The cursor must be at their end.
func erase(out io.Writer, lines int) {
	if lines > 1 {
		_, _ = fmt.Fprintf(out, "\x1b[%dA", lines-1)
	}
	if lines > 0 {
		_, _ = io.WriteString(out, "\r\x1b[J")
	}
}

// key is a character, or one of the special keys below.
type key rune

const (
	up key = -iota - 1
	down
	left
	right
	enter
	erased
	cancel
	other
)

// read returns the next key.
func read(in *bufio.Reader) (key, error) {
	r, _, err := in.ReadRune()
	if err != nil {
		return other, err
	}
	switch r {
	case '\r', '\n':
		return enter, nil
	case 0x7f, '\b':
		return erased, nil
	case 3, 4: // ctrl-c, ctrl-d
		return cancel, nil
	case 14: // ctrl-n
		return down, nil
	case 16: // ctrl-p
		return up, nil
	case 0x1b:
		return escape(in)
	}
	if r < ' ' {
		return other, nil
	}
	return key(r), nil
}

// escape reads the rest of an escape sequence. The escape key without a sequence cancels.
func escape(in *bufio.Reader) (key, error) {
	if in.Buffered() == 0 {
		return cancel, nil
	}
	if next, _, err := in.ReadRune(); err != nil || next != '[' && next != 'O' {
		return other, err
	}
	for {
		final, _, err := in.ReadRune()
		if err != nil {
			return other, err
		}
		if final < '@' || final > '~' {
			continue
		}
		switch final {
		case 'A':
			return up, nil
		case 'B':
			return down, nil
		case 'C':
			return right, nil
		case 'D':
			return left, nil
		}
		return other, nil
	}
}

// browser is the state of the screen.
type browser struct {
	list   Lister
	rows   int
	at     location.Location
	names  []string
	filter string
	cursor int // 0 is the workspace itself, i is the i-th matching child
	note   string
}

func (b *browser) open(l location.Location) error {
	names, err := b.list(l)
	if err != nil {
		return err
	}
	b.at, b.names, b.filter, b.cursor, b.note = l, names, "", 0, ""
	if len(names) > 0 {
		b.cursor = 1
	}
	return nil
}

// matching returns the names that contain the filter.
func (b *browser) matching() []string {
	var names []string
	for _, name := range b.names {
		if strings.Contains(name, b.filter) {
			names = append(names, name)
		}
	}
	return names
}

func (b *browser) chosen() location.Location {
	if names := b.matching(); b.cursor > 0 && b.cursor <= len(names) {
		return b.at.Child(names[b.cursor-1])
	}
	return b.at
}

// press handles a key, and reports whether a workspace is chosen.
func (b *browser) press(k key) (bool, error) {
	b.note = ""
	switch k {
	case cancel:
		return true, ErrCancelled
	case enter:
		return true, nil
	case up:
		b.cursor = max(b.cursor-1, 0)
	case down:
		b.cursor = min(b.cursor+1, len(b.matching()))
	case right:
		b.enter(b.chosen())
	case left:
		b.leave()
	case erased:
		if b.filter != "" {
			b.search(b.filter[:len(b.filter)-1])
		}
	default:
		if k >= 0 && (k >= 'a' && k <= 'z' || k >= '0' && k <= '9' || k == '-') {
			b.search(b.filter + string(rune(k)))
		}
	}
	return false, nil
}

// enter shows the children of l, or the error of listing them.
func (b *browser) enter(l location.Location) {
	if err := b.open(l); err != nil {
		b.note = err.Error()
	}
}

// leave shows the parent, with the current workspace selected.
func (b *browser) leave() {
	from := b.at
	parent, ok := from.Parent()
	if !ok {
		b.note = from.String() + " has no parent"
		return
	}
	b.enter(parent)
	for i, name := range b.names {
		if b.at.Child(name) == from {
			b.cursor = i + 1
		}
	}
}

func (b *browser) search(filter string) {
	b.filter = filter
	b.cursor = min(1, len(b.matching()))
}

// screen returns the lines of the screen.
func (b *browser) screen() []string {
	title := b.at.String()
	if b.filter != "" {
		title += "  matching " + b.filter
	}
	lines := []string{title}
	entries := append([]string{". (this workspace)"}, b.matching()...)
	begin := max(0, min(b.cursor-b.rows/2, len(entries)-b.rows))
	for i := begin; i < min(begin+b.rows, len(entries)); i++ {
		mark := "  "
		if i == b.cursor {
			mark = "> "
		}
		lines = append(lines, mark+entries[i])
	}
	if hidden := len(entries) - b.rows; hidden > 0 {
		lines = append(lines, fmt.Sprintf("  (%d more)", hidden))
	}
	if b.note != "" {
		return append(lines, b.note)
	}
	return append(lines, "arrows: browse, letters: filter, enter: switch, escape: cancel")
}
