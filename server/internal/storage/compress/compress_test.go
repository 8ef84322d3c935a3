package compress

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

const object = `{"kind":"Thing","apiVersion":"example.io/v1","metadata":{"name":"a-name","uid":"612d50da-8588-4be2-97a6-1aa452914be1",` +
	`"creationTimestamp":"2026-11-21T11:13:15Z","labels":{"example.io/phase":"Ready"},"annotations":{"example.io/owner":"bob"}},` +
	`"spec":{"replicas":3,"selector":{"app":"a-name"}},"status":{"URL":"https://localhost:6443/things/0hxe8mh6li34eycg"}}`

var common = NewDictionary([]byte(object))

// decoded returns a value as the decoder of S2 reads it from a block, because earlier servers read with that.
func decoded(t testing.TB, dictionary, block []byte) []byte {
	t.Helper()
	value, err := s2.MakeDict(dictionary, nil).Decode(nil, block)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestValuesAreWhatTheyWere(t *testing.T) {
	long := strings.Repeat("long ", longest/5)
	for _, value := range []string{
		"", "{}", "abcdabcdabcd", object[:7], object, strings.ReplaceAll(object, "a-name", "another"), object[200:] + object, object + object,
		strings.Repeat("a", 59), strings.Repeat("a", 60), strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 271),
		strings.Repeat("a", 272), strings.Repeat("a", 273), long, long + long, "x" + object[1:], object[:100] + "!" + object[101:],
	} {
		block := common.Append([]byte("mark"), []byte(value))
		rest, ok := bytes.CutPrefix(block, []byte("mark"))
		if got := decoded(t, []byte(object), rest); !ok || string(got) != value {
			t.Errorf("%.100q became %.100q", value, got)
		}
		if got, err := common.Decode(rest, len(value)); err != nil || string(got) != value {
			t.Errorf("%.100q became %.100q: %v", value, got, err)
		}
		if got, err := common.Decode(rest, len(value)-1); err == nil {
			t.Errorf("more bytes than the limit were decoded: %.100q", got)
		}
	}
}

// Literals and references of all lengths and distances that have another form.
func TestEveryLengthIsEncoded(t *testing.T) {
	noise := make([]byte, 700)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(source.Uint32())
	}
	for literals := range 300 {
		for _, repeated := range []int{0, 4, 5, 11, 12, 63, 64, 65, 66, 67, 68, 69, 260, 263, 264, 265, 300} {
			value := append(bytes.Clone(noise[:literals]), noise[literals:literals+repeated]...)
			value = append(append(value, "between"...), noise[literals:literals+repeated]...)
			if got := decoded(t, []byte(object), common.Append(nil, value)); !bytes.Equal(got, value) {
				t.Fatalf("%d literals and %d bytes again: differs", literals, repeated)
			}
		}
	}
}

func TestShortValuesAreAsShortAsThoseOfS2(t *testing.T) {
	plain := s2.MakeDict([]byte(object), nil)
	for i := range 20 {
		value := []byte(strings.NewReplacer("a-name", fmt.Sprint("name-", i), "bob", "alice", "612d50da", "ffd8aab1", "app", "application").Replace(object))
		if got, usual := len(common.Append(nil, value)), len(plain.Encode(nil, value)); got > usual {
			t.Errorf("%s takes %d bytes, and %d with the encoder of S2", value, got, usual)
		}
	}
}

func FuzzValuesAreWhatTheyWere(f *testing.F) {
	f.Add([]byte(object), []byte(object))
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz"), []byte("abcdefabcdefabcdefghijklmnop"))
	f.Fuzz(func(t *testing.T, dictionary, value []byte) {
		if len(dictionary) < s2.MinDictSize || len(dictionary) > longest {
			return
		}
		if got := decoded(t, dictionary, NewDictionary(dictionary).Append(nil, value)); !bytes.Equal(got, value) {
			t.Fatalf("%q became %q", value, got)
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	plain := s2.MakeDict([]byte(object), nil)
	value := []byte(strings.ReplaceAll(object, "a-name", "another"))
	for name, encode := range map[string]func() []byte{
		"with this package": func() []byte { return common.Append(nil, value) },
		"with S2":           func() []byte { return plain.Encode(nil, value) },
	} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() { done <- len(encode()) }() // in a new goroutine, as for a request
				b.ReportMetric(float64(<-done), "bytes")
			}
		})
	}
}
