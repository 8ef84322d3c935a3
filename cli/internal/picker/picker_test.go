package picker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/kcplane/kcp/cli/internal/location"
)

const width = 40

const (
	keyUp, keyDown, keyRight, keyLeft = "\x1b[A", "\x1b[B", "\x1b[C", "\x1bOD"
)

// forest has three workspaces in root and two in root:b; listing root:c is forbidden.
func forest(l location.Location) ([]string, error) {
	switch l.Cluster() {
	case "root":
		return []string{"a", "b", "c-long-name"}, nil
	case "root:b":
		return []string{"x", "y"}, nil
	case "root:c-long-name":
		return nil, errors.New("access to workspace denied")
	}
	return nil, nil
}

// keys returns one key per read, like a terminal.
type keys struct{ left []string }

func (k *keys) Read(buffer []byte) (int, error) {
	if len(k.left) == 0 {
		return 0, io.EOF
	}
	n := copy(buffer, k.left[0])
	k.left = k.left[1:]
	return n, nil
}

func pick(t *testing.T, typed ...string) (string, string, error) {
	t.Helper()
	start, err := location.Parse("https://h/clusters/root")
	if err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	chosen, err := choose(&keys{typed}, &screen, start, forest, 3, width)
	return chosen.Cluster(), screen.String(), err
}

func TestKeysNavigateTheTree(t *testing.T) {
	for _, test := range []struct {
		want  string
		typed []string
	}{
		{"root:a", []string{"\r"}},
		{"root", []string{keyUp, "\r"}},
		{"root", []string{keyUp, keyUp, keyUp, "\n"}},
		{"root:b", []string{keyDown, "\r"}},
		{"root:c-long-name", []string{keyDown, keyDown, keyDown, keyDown, "\r"}},
		{"root:b:x", []string{keyDown, keyRight, "\r"}},
		{"root:b:y", []string{keyDown, keyRight, "\x0e", "\r"}},
		{"root:b", []string{keyDown, keyRight, keyUp, "\r"}},
		{"root:b", []string{keyDown, keyRight, keyLeft, "\r"}},
		{"root:a", []string{keyDown, keyRight, keyLeft, "\x10", "\r"}},
		{"root:c-long-name", []string{"l", "o", "\r"}},
		{"root:c-long-name", []string{"-", "\r"}},
		{"root:a", []string{"l", "\x7f", "\r"}},
		{"root", []string{"z", "\r"}},
		{"root:a", []string{keyLeft, "\r"}},
		{"root:a", []string{keyRight, "\r"}},
		{"root:a", []string{"\x1b[1;5H", "\t", "é", "A", "\r"}},
	} {
		if got, _, err := pick(t, test.typed...); err != nil || got != test.want {
			t.Errorf("keys %q choose %q, %v; want %q", test.typed, got, err, test.want)
		}
	}
}

func TestCancel(t *testing.T) {
	for _, typed := range [][]string{{"\x1b"}, {"\x03"}, {"\x04"}, {}, {"a", keyDown}} {
		if got, _, err := pick(t, typed...); !errors.Is(err, ErrCancelled) {
			t.Errorf("keys %q choose %q, %v", typed, got, err)
		}
	}
}

func TestScreenShowsPartOfALongList(t *testing.T) {
	_, screen, _ := pick(t, keyDown, keyDown)
	frames := strings.Split(screen, "\r\x1b[J")
	last := strings.Split(frames[len(frames)-2], "\r\n")
	want := []string{"root", "  a", "  b", "> c-long-name", "  (1 more)"}
	if fmt.Sprint(last[:5]) != fmt.Sprint(want) {
		t.Errorf("last line is %q", last)
	}
	_, screen, _ = pick(t, keyDown, keyDown, keyRight)
	if !strings.Contains(screen, "access to workspace") {
		t.Errorf("screen has no error: %q", screen)
	}
	_, screen, _ = pick(t, keyLeft)
	if !strings.Contains(screen, "root has no parent") {
		t.Errorf("screen has no note about the missing parent: %q", screen)
	}
	for _, frame := range strings.Split(screen, "\r\x1b[J") {
		for _, line := range strings.Split(frame, "\r\n") {
			if line, _, _ = strings.Cut(line, "\x1b"); len(line) > width {
				t.Errorf("a line is too long: %q", line)
			}
		}
	}
}

func TestIsTerminal(t *testing.T) {
	if IsTerminal(strings.NewReader(""), &bytes.Buffer{}) {
		t.Error("a buffer is not a terminal")
	}
}
