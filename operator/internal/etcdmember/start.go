// Package etcdmember keeps a member of an etcd from doing on its own what only the operator may decide: what an empty volume
// means. A member whose volume holds data just starts. One with an empty volume waits, and says so, until it is told whether
// to start a cluster or as whom to join one; by itself it would start a second cluster, or vote as somebody who forgot
// everything.
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

// Annotation of a pod is how its member is told. The pod's process reads it as a file.
const Annotation = "operator.kcp.io/etcd-start"

// WaitingPath answers with 200 while a member waits to be told; a member that runs does not know the path.
const WaitingPath = "/waiting"

// States in which a member can start, in etcd's words.
const (
	StateNew      = "new"
	StateExisting = "existing"
)

// Start is what a member with an empty volume is told.
type Start struct {
	// State is StateNew for the very first member, StateExisting for all others.
	State string `json:"state"`
	// Cluster is etcd's --initial-cluster: every member and its peer URL, the one that starts included.
	Cluster string `json:"cluster"`
	// Token is etcd's --initial-cluster-token.
	Token string `json:"token"`
	// MemberID is the identity, in hexadecimal, under which the member was added. Unset for StateNew.
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

// Parse reads what a member is told. Nothing, and what makes no sense, is an error.
func Parse(text []byte) (Start, error) {
	var s Start
	if err := json.Unmarshal(text, &s); err != nil {
		return Start{}, fmt.Errorf("what to start as: %w", err)
	}
	if s.Cluster == "" || s.Token == "" || (s.State != StateNew && s.State != StateExisting) {
		return Start{}, fmt.Errorf("what to start as: %q lacks a cluster, a token or a state", text)
	}
	return s, nil
}

// Empty reports whether a data directory holds no member's data.
func Empty(dataDir string) (bool, error) {
	logs, err := filepath.Glob(filepath.Join(dataDir, "member", "wal", "*.wal"))
	return len(logs) == 0, err
}

// Await waits until a file tells what to start as. Until then it answers on an address: alive, not ready, waiting.
func Await(ctx context.Context, file, address string, interval time.Duration) (Start, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return Start{}, fmt.Errorf("address to wait on: %w", err)
	}
	server := &http.Server{Handler: waiting(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { // etcd takes the address over
		_ = server.Close()
		<-served
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return Start{}, fmt.Errorf("what to start as: %w", err)
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
