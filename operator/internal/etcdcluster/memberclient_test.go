package etcdcluster

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
)

// serve answers for a pod, at an address that no member has.
func serve(t *testing.T, last int, status int) memberClient {
	t.Helper()
	address := fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()/250%128, os.Getpid()%250, last)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(MetricsPort)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return memberClient{address: address}
}

func TestAMemberThatStartsBetweenQueriesHasNotLostItsVolume(t *testing.T) {
	started, waiting := serve(t, 201, http.StatusNotFound), serve(t, 202, http.StatusOK)
	observed := &clusterSnapshot{observation: cluster(3).with(loseVolumes(0, 1, 2)), clients: map[int]memberClient{0: started, 1: waiting, 2: {address: "127.0.0.254"}}}
	observed.confirmEmptyVolumes(t.Context())
	for ordinal, want := range []bool{false, true, false} {
		if got := observed.pods[ordinal].empty; got != want {
			t.Errorf("the volume of %d is empty: %t", ordinal, got)
		}
	}
}
