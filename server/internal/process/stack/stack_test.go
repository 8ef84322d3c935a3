package stack

import "testing"

var sink int

//go:noinline
func descend(depth int, room [256]byte) int {
	if depth == 0 {
		return int(room[0])
	}
	room[depth%len(room)]++
	return descend(depth-1, room) + int(room[1])
}

func BenchmarkADeepGoroutine(b *testing.B) {
	for name, before := range map[string]func(){"as it is": func() {}, "grown": Grow} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() {
					before()
					done <- descend(70, [256]byte{})
				}()
				sink += <-done
			}
		})
	}
}
