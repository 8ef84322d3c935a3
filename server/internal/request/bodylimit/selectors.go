package bodylimit

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

const (
	// maxRequirements is the maximum number of requirements of a selector: the server checks each of them for each object.
	maxRequirements = 1000
	// maxSelected is the maximum number of requirements and values in parentheses of a selector: a regular expression checks each of them.
	maxSelected = 10_000
	// shortQuery is the length of queries that cannot exceed these limits.
	shortQuery = 2 * maxRequirements
)

// WithSelectors refuses requests whose selectors have too many requirements or values.
func WithSelectors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > shortQuery {
			query := r.URL.Query()
			for _, name := range []string{"labelSelector", "fieldSelector"} {
				selector := query.Get(name)
				n, limit, what := requirements(selector), maxRequirements, "requirements"
				if n <= limit {
					n, limit, what = 1+strings.Count(selector, ","), maxSelected, "requirements and values"
				}
				if n > limit {
					responsewriters.WriteRawJSON(http.StatusBadRequest, metav1.Status{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
						Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
						Message: fmt.Sprintf("%s has %d %s; at most %d are allowed", name, n, what, limit),
					}, w)
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// requirements returns the number of requirements of a selector. Commas in parentheses separate values.
func requirements(selector string) int {
	n := 1
	for selector != "" {
		i := strings.IndexAny(selector, ",(")
		if i < 0 {
			break
		}
		if selector[i] == ',' {
			n++
			selector = selector[i+1:]
			continue
		}
		end := strings.IndexByte(selector[i:], ')')
		if end < 0 {
			break
		}
		selector = selector[i+end+1:]
	}
	return n
}
