// Package stack grows the stacks of goroutines before they call deeply.
package stack

// size is the room that Grow makes, in bytes. Most requests need more than half of it.
const size = 24 << 10

// Grow makes the stack of this goroutine large enough for a request. The runtime doubles a stack each time that it is too small, and moves
// all frames that are on it: while there are few, this costs little. A stack that is not used becomes smaller with each garbage collection.
//
//go:noinline
func Grow() {
	if clears {
		var room [size]byte
		use(&room)
	}
}

// clears is always false. The frame of Grow has the room anyway, and clearing it would cost as much as the rest.
var clears bool

//go:noinline
func use(*[size]byte) {}
