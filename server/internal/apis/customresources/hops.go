package customresources

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// HopsHeader counts how often a request was forwarded from virtual storage to a virtual workspace.
const HopsHeader = "X-Kcp-Virtual-Resource-Hops"

// maxHops limits how often a request may be forwarded.
const maxHops = 4

type hopsKey struct{}

// withHops stores in the context how often a request was forwarded, or returns an error if it must not be forwarded
// again.
func withHops(r *http.Request) (*http.Request, error) {
	text := r.Header.Get(HopsHeader)
	if text == "" {
		return r, nil
	}
	hops, err := strconv.Atoi(text)
	if err != nil || hops < 0 || hops >= maxHops {
		return r, fmt.Errorf("the request was already forwarded %d times: check the URLs in endpoint slices, which may form a loop", maxHops)
	}
	return r.WithContext(context.WithValue(r.Context(), hopsKey{}, hops)), nil
}

// Hops returns the number that withHops stores.
func Hops(ctx context.Context) int {
	hops, _ := ctx.Value(hopsKey{}).(int)
	return hops
}
