package customresources

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestBodiesAreRewritten(t *testing.T) {
	for name, c := range map[string]struct{ media, in, want string }{
		"object":         {"application/json", `{"apiVersion":"v1","spec":{"apiVersion":"v1"}}`, `{"apiVersion":"core.kcp.invalid/v1","spec":{"apiVersion":"v1"}}`},
		"other group":    {"application/json", `{"apiVersion":"autoscaling/v1"}`, `{"apiVersion":"autoscaling/v1"}`},
		"managed fields": {"", `{"metadata":{"managedFields":[{"apiVersion":"v1"}]}}`, `{"metadata":{"managedFields":[{"apiVersion":"core.kcp.invalid/v1"}]}}`},
		"apply":          {"application/apply-patch+yaml", "apiVersion: v1\nkind: Pod", `{"apiVersion":"core.kcp.invalid/v1","kind":"Pod"}`},
		"merge patch":    {"application/merge-patch+json", `{"spec":null}`, `{"spec":null}`},
		"JSON patch":     {"application/json-patch+json", `[{"op":"test","path":"/apiVersion","value":"v1"}]`, `[{"op":"test","path":"/apiVersion","value":"core.kcp.invalid/v1"}]`},
		"no JSON":        {"application/json", `{"apiVersion"`, `{"apiVersion"`},
		"large number":   {"application/json", `{"apiVersion":"v1","n":9007199254740993}`, `{"apiVersion":"core.kcp.invalid/v1","n":9007199254740993}`},
		"nothing":        {"application/json", ``, ``},
	} {
		if got := string(bodyInward(c.media, []byte(c.in))); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func FuzzAResponseIsRewrittenAcrossWrites(f *testing.F) {
	f.Add(`{"apiVersion":"core.kcp.invalid/v1","message":"pods.core.kcp.invalid \"x\" not found","group":"core.kcp.invalid"}`, 30)
	f.Add(".core.kcp.invali", 3)
	f.Add("..core.kcp.invalid/", 1)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		want := textOutward.Replace(text)
		recorder := httptest.NewRecorder()
		w := &coreWriter{ResponseWriter: recorder}
		step := max(1, cut&0x1f)
		for rest := text; len(rest) > 0; {
			n := min(step, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		w.finish()
		if got := recorder.Body.String(); got != want {
			t.Errorf("in steps of %d: got %q, want %q", step, got, want)
		}
		if strings.Contains(text, innerGroup) && recorder.Body.Len() == len(text) {
			t.Error("nothing was rewritten")
		}
	})
}
