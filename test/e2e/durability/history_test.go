package durability

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// request is a request of a client for a register.
type request struct {
	put   bool
	value string // of a put
}

// response is the response to the client.
type response struct {
	value   string // of a get
	unknown bool   // a put whose response was lost, and that may have taken effect
}

// register is a register with put and get, and an initial value. A put without a response ends when its server is killed, with or without
// an effect.
func register(initial string) porcupine.Model {
	return nondeterministic(initial).ToModel()
}

func nondeterministic(initial string) *porcupine.NondeterministicModel {
	return &porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, in, out any) []any {
			asked, told := in.(request), out.(response)
			switch {
			case asked.put && told.unknown:
				return []any{state, asked.value}
			case asked.put:
				return []any{asked.value}
			case told.value == state.(string):
				return []any{state}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func describe(in, out any) string {
	asked, told := in.(request), out.(response)
	if asked.put {
		return fmt.Sprintf("put %s (unknown: %t)", asked.value, told.unknown)
	}
	return "get " + told.value
}

// history is the operations on one register, in the order of their responses.
type history struct {
	mu         sync.Mutex
	began      time.Time
	lives      []life // completed
	initial    string // of the current life
	operations []porcupine.Operation
	open       []int // puts of the current life without a response
}

// life is the operations between two starts of the server.
type life struct {
	initial    string
	operations []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) note(client int, asked request, told response, call int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if told.unknown {
		h.open = append(h.open, len(h.operations))
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: asked, Output: told, Call: call, Return: h.now()})
}

// killed records that the server was killed at a time: operations have no effect after that.
func (h *history) killed(at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.open {
		h.operations[i].Return = at
	}
	h.open = nil
	h.operations = slices.DeleteFunc(h.operations, func(o porcupine.Operation) bool { return o.Call >= at })
}

// restarted records the value of the register after a restart, before other operations. A new life begins with it.
func (h *history) restarted(value string) {
	h.note(0, request{}, response{value: value}, h.now())
	h.lives = append(h.lives, life{h.initial, h.operations})
	h.initial, h.operations = value, nil
}

// puts returns the values of acknowledged puts, and those of puts without a response.
func (h *history) puts() (acknowledged, unknown map[string]bool) {
	acknowledged, unknown = map[string]bool{}, map[string]bool{}
	for _, l := range h.lives {
		for _, o := range l.operations {
			if asked := o.Input.(request); asked.put && o.Output.(response).unknown {
				unknown[asked.value] = true
			} else if asked.put {
				acknowledged[asked.value] = true
			}
		}
	}
	return acknowledged, unknown
}

// String lists the operations, one in each line.
func (l life) String() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "initial value %q\n", l.initial)
	for _, o := range l.operations {
		fmt.Fprintf(text, "%d-%d client %d: %s\n", o.Call, o.Return, o.ClientId, describe(o.Input, o.Output))
	}
	return text.String()
}

// checkTimeout limits the search for an order. The test fails if it expires.
const checkTimeout = time.Minute

func (l life) linearizable() bool {
	return porcupine.CheckOperationsTimeout(register(l.initial), l.operations, checkTimeout) == porcupine.Ok
}

func TestCheckFindsLostWritesAndStaleReads(t *testing.T) {
	put := func(v string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: request{put: true, value: v}, Output: response{}, Call: call, Return: end}
	}
	lost := func(v string, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: request{put: true, value: v}, Output: response{unknown: true}, Call: call, Return: end}
	}
	get := func(v string, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 2, Input: request{}, Output: response{value: v}, Call: call, Return: end}
	}
	for what, c := range map[string]struct {
		operations []porcupine.Operation
		want       bool
	}{
		"in order":                                    {[]porcupine.Operation{put("a", 0, 1), get("a", 2, 3), put("b", 4, 5), get("b", 6, 7)}, true},
		"a read at the same time as a write":          {[]porcupine.Operation{put("a", 0, 1), put("b", 2, 5), get("a", 3, 4), get("b", 6, 7)}, true},
		"a write without response, with an effect":    {[]porcupine.Operation{put("a", 0, 1), lost("b", 2, 5), get("b", 6, 7)}, true},
		"a write without response, without an effect": {[]porcupine.Operation{put("a", 0, 1), lost("b", 2, 5), get("a", 6, 7)}, true},
		"a lost write":                                {[]porcupine.Operation{put("a", 0, 1), put("b", 2, 3), get("a", 6, 7)}, false},
		"a stale read":                                {[]porcupine.Operation{put("a", 0, 1), put("b", 2, 3), get("b", 4, 5), get("a", 6, 7)}, false},
		"an effect after the kill of the server":      {[]porcupine.Operation{put("a", 0, 1), lost("b", 2, 5), get("a", 6, 7), get("b", 8, 9)}, false},
		"a value that no client wrote":                {[]porcupine.Operation{put("a", 0, 1), get("c", 2, 3)}, false},
	} {
		if got := (life{"", c.operations}).linearizable(); got != c.want {
			t.Errorf("%s: got linearizable %t", what, got)
		}
	}
}
