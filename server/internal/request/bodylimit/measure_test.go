package bodylimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestABodyHasABoundedNumberOfValues(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	lists := func(lists, items int) string {
		list := "[" + strings.Repeat("1,", items-1) + "1]"
		return "[" + strings.Repeat(list+",", lists-1) + list + "]"
	}
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":"",`, i)
		}
		return `{"data":{` + b.String() + `"last":""}}`
	}
	laughs := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 6 {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 9)+fmt.Sprintf("*%c", 'a'+i))
	}
	long := strings.Repeat("k", 500_000)
	for name, tc := range map[string]struct {
		body, contentType string
		refused           string // empty: it is not
	}{
		"an ordinary object":    {`{"a":"b,{[\"","c":[1,2,{"d":null}]}`, "application/json", ""},
		"ordinary YAML":         {"a: &x {b: c}\nd: *x\n", "application/yaml", ""},
		"invalid YAML":          {"a: [", "application/yaml", ""},
		"YAML that is JSON":     {`{"a":[1]}`, "application/apply-patch+yaml", ""},
		"nothing":               {"", "application/yaml", ""},
		"deep":                  {deep(maxDepth), "application/json", ""},
		"too deep":              {deep(maxDepth + 1), "application/json", "nested more than 1000 deep"},
		"too deep a patch":      {deep(maxDepth + 1), "application/merge-patch+json", "nested more than 1000 deep"},
		"many lists":            {lists(1000, 100), "application/json", ""},
		"many values":           {lists(1000, 200), "application/json", "more than 200000 values"},
		"a large list":          {lists(1, 20_001), "application/json", "largest lists and objects; a single one may have 20000"},
		"two large lists":       {lists(2, 15_000), "application/json", "largest lists and objects"},
		"a large object":        {keys(20_000), "application/json", "largest lists and objects"},
		"strings with commas":   {`["` + strings.Repeat(",", 1<<20) + `"]`, "application/json", ""},
		"a long key":            {`{"` + long + `":[` + strings.Repeat("1,", 300) + `1]}`, "application/json", "too many values with long paths"},
		"YAML with many values": {"- " + lists(1, 20_001), "application/yaml", "largest lists"},
		"a scalar many times":   {"a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a, ", 5000) + "*a]\n", "application/yaml", "after its aliases are expanded"},
		"a billion laughs":      {laughs, "application/apply-patch+yaml", "after its aliases are expanded"},
		"large YAML":            {"a: " + strings.Repeat("x", maxYAML), "application/yaml", "more than 3145728 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pieces := range []bool{false, true} {
				if pieces && len(tc.body) > 1<<20 {
					continue
				}
				got, err := read([]byte(tc.body), tc.contentType, pieces)
				if tc.refused == "" {
					if err != nil || string(got) != tc.body {
						t.Errorf("in pieces (%t): %d bytes, %v", pieces, len(got), err)
					}
					continue
				}
				isOf := apierrors.IsRequestEntityTooLargeError
				if strings.Contains(tc.refused, "deep") {
					isOf = apierrors.IsBadRequest
				}
				if !isOf(err) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("in pieces (%t): %v, want %q", pieces, err, tc.refused)
				}
			}
		})
	}
}

func TestASelectorHasABoundedNumberOfRequirements(t *testing.T) {
	for name, tc := range map[string]struct {
		parameter, selector string
		want                int
	}{
		"few":                   {"labelSelector", "a=b,c in (d,e),!f", http.StatusOK},
		"many values":           {"labelSelector", "a in (" + strings.Repeat("b,", 5000) + "b)", http.StatusOK},
		"too many values":       {"labelSelector", "a in (" + strings.Repeat("b,", maxSelected) + "b)", http.StatusBadRequest},
		"many requirements":     {"labelSelector", strings.Repeat("!a,", maxRequirements) + "a", http.StatusBadRequest},
		"the same after values": {"labelSelector", "a in (b)," + strings.Repeat("!a,", maxRequirements) + "a", http.StatusBadRequest},
		"many fields":           {"fieldSelector", strings.Repeat("a!=b,", maxRequirements) + "a=b", http.StatusBadRequest},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?"+url.Values{tc.parameter: {tc.selector}}.Encode(), nil)
		WithSelectors(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
}

func BenchmarkMeasure(b *testing.B) {
	object := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("text ", 1000) + `"}}`)
	b.SetBytes(int64(len(object)))
	for b.Loop() {
		if err := (&measure{}).add(object); err != nil {
			b.Fatal(err)
		}
	}
}
