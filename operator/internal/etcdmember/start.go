// Package etcdmember starts a member of an etcd cluster. A member with data starts immediately. A member with an empty volume reports that
// it waits, until the operator instructs it to start a cluster, or to join one as a given member. By itself it could start a second
// cluster, or vote without the data that it has acknowledged before.
package etcdmember

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Annotation of a pod is the start annotation: it has the Start of its member. The process reads it as a file.
const Annotation = "operator.kcp.io/etcd-start"

// WaitingPath returns 200 while a member waits for its start annotation. A running member does not serve the path.
const WaitingPath = "/waiting"

// States in which a member can start: values of --initial-cluster-state.
const (
	StateNew      = "new"
	StateExisting = "existing"
)

// Start describes how a member with an empty volume starts.
type Start struct {
	// State is StateNew for the first member of a cluster, and StateExisting for all others.
	State string `json:"state"`
	// Cluster is etcd's --initial-cluster: every member and its peer URL, the starting member included.
	Cluster string `json:"cluster"`
	// Token is etcd's --initial-cluster-token.
	Token string `json:"token"`
	// MemberID is the hexadecimal ID with which the member was added. It is unset for StateNew.
	MemberID string `json:"memberID,omitempty"`
}

// Arguments returns the start as arguments of etcd.
func (s Start) Arguments() []string {
	return []string{
		"--initial-cluster-state=" + s.State,
		"--initial-cluster=" + s.Cluster,
		"--initial-cluster-token=" + s.Token,
	}
}

// Parse parses a Start. Empty and incomplete text is an error.
func Parse(text []byte) (Start, error) {
	var s Start
	if err := json.Unmarshal(text, &s); err != nil {
		return Start{}, fmt.Errorf("parsing the start annotation: %w", err)
	}
	if s.Cluster == "" || s.Token == "" || (s.State != StateNew && s.State != StateExisting) {
		return Start{}, fmt.Errorf("parsing the start annotation: %q lacks a cluster, a token or a state", text)
	}
	return s, nil
}

// Empty reports whether a data directory has no data of a member.
func Empty(dataDir string) (bool, error) {
	logs, err := filepath.Glob(filepath.Join(dataDir, "member", "wal", "*.wal"))
	return len(logs) == 0, err
}

// Await waits until a file has the Start of the member, and returns it. Until then, the health checks on an address report a member that is
// alive, not ready, and waiting.
func Await(ctx context.Context, file, address string, interval time.Duration) (Start, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return Start{}, fmt.Errorf("listening for health checks: %w", err)
	}
	server := &http.Server{Handler: waiting(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { // etcd listens on the address next
		_ = server.Close()
		<-served
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return Start{}, fmt.Errorf("reading the start annotation: %w", err)
		}
		if len(text) > 0 {
			return Parse(text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Start{}, ctx.Err()
		}
	}
}

func waiting() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("waiting\n")) }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET "+WaitingPath, alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the volume is empty: waiting for the operator", http.StatusServiceUnavailable)
	})
	return mux
}
