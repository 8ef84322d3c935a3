package frontproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/frontproxy/forward"
)

// Clients repeat a request that they are asked to repeat, so that a write that was executed would be executed twice.
func TestAWriteThatMayHaveBeenExecutedIsNotRepeated(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		method string
		err    error
		repeat bool
	}{
		"a read":                       {http.MethodGet, io.ErrUnexpectedEOF, true},
		"a write that was not sent":    {http.MethodPost, refused, true},
		"a write without its response": {http.MethodPost, io.ErrUnexpectedEOF, false},
		"a deletion without it":        {http.MethodDelete, io.ErrUnexpectedEOF, false},
	} {
		err := noResponse(c.method, &forward.Unreachable{Target: forward.Target{Shard: "west"}, Err: c.err})
		if _, repeat := apierrors.SuggestsClientDelay(err); repeat != c.repeat || !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: got %v, which clients repeat: %t", name, err, repeat)
		}
	}
}
