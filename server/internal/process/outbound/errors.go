package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"regexp"
)

// callError is the error of a call. Its text names the host and the cause. The wrapped error is for programs and must not be shown.
type callError struct {
	text    string
	timeout bool
	err     error
}

// Error implements error.
func (e *callError) Error() string { return e.text }

// Unwrap returns the error with all details.
func (e *callError) Unwrap() error { return e.err }

// Timeout implements net.Error.
func (e *callError) Timeout() bool { return e.timeout }

// Temporary implements net.Error.
func (e *callError) Temporary() bool { return false }

// describe returns the error of a call, without addresses.
func describe(ctx context.Context, r *http.Request, err error) error {
	var described *callError
	if errors.As(err, &described) {
		return err
	}
	e := &callError{err: err}
	var timeout interface{ Timeout() bool }
	e.timeout = errors.As(err, &timeout) && timeout.Timeout()
	reason := Cause(err)
	if ctx.Err() != nil {
		// The deadline of the reader, or of the limits.
		e.timeout = errors.Is(ctx.Err(), context.DeadlineExceeded)
		reason = context.Cause(ctx).Error()
	}
	e.text = "calling " + r.URL.Host + ": " + reason
	return e
}

// addresses matches the parts of error texts that describe the networks of the server.
var addresses = regexp.MustCompile(`( on)? ?(\[[0-9a-fA-F:.]+(%\w+)?\]|\d+\.\d+\.\d+\.\d+):\d+(->\S+:\d+)?`)

// Cause returns why a call failed, without addresses of the server, its resolver, its proxy or the host.
func Cause(err error) string {
	var resolving *net.DNSError
	var operation *net.OpError
	var system *os.SyscallError
	var elsewhere *elsewhereError
	switch {
	case errors.As(err, &operation) && operation.Op == "proxyconnect":
		return "the proxy of the server is unreachable"
	case errors.As(err, &resolving) && resolving.IsNotFound:
		return "no such host"
	case errors.As(err, &resolving) && resolving.IsTimeout:
		return "resolving its name timed out"
	case errors.As(err, &resolving):
		return "resolving its name failed"
	case errors.As(err, &elsewhere):
		return elsewhere.Error()
	case errors.As(err, &operation) && operation.Err != nil:
		return operation.Op + ": " + Cause(operation.Err)
	case errors.As(err, &system):
		return system.Err.Error()
	}
	return addresses.ReplaceAllString(err.Error(), "")
}
