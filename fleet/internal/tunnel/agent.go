package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/yamux"
)

// Run opens the connection of an agent at a URL, and serves the requests of the fleet with handler until the connection breaks, or ctx
// ends. transport authenticates the agent, and must use HTTP/1.1.
func Run(ctx context.Context, transport http.RoundTripper, url string, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {Protocol}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	conn, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		return fmt.Errorf("opening the tunnel: the fleet responds with %s", response.Status)
	}
	session, err := yamux.Server(conn, config())
	if err != nil {
		return err
	}
	defer session.Close()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: responseTimeout, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: time.Minute,
		BaseContext: func(_ net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { session.Close() })
	defer stop()
	if err := server.Serve(session); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
