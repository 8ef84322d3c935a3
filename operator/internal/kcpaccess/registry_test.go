package kcpaccess

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// registry is a root shard with one Shard object, whose deletion it may refuse.
type registry struct {
	annotations map[string]string
	requests    []string
}

func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.requests = append(r.requests, request.Method)
	switch {
	case request.URL.Path != "/clusters/root/apis/core.kcp.io/v1alpha1/shards/west":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"}`)
		return
	case request.Method == http.MethodDelete && r.annotations[LoseAnnotation] != "true":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "holds 12 logical clusters"}`)
		return
	case request.Method == http.MethodPatch:
		patch := struct {
			Metadata struct{ Annotations map[string]*string }
		}{}
		if err := json.Unmarshal(body, &patch); err != nil || request.Header.Get("Content-Type") != "application/merge-patch+json" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for key, value := range patch.Metadata.Annotations {
			if delete(r.annotations, key); value != nil {
				r.annotations[key] = *value
			}
		}
	}
	annotations, _ := json.Marshal(r.annotations)
	fmt.Fprintf(w, `{"metadata": {"annotations": %s}, "spec": {"baseURL": "https://west:6443"}, "status": {
		"used": {"logicalclusters": "12k"}, "conditions": [{"type": "Ready", "status": "False", "message": "no route"}]}}`, annotations)
}

func TestTheShardObjectIsRead(t *testing.T) {
	root := &registry{annotations: map[string]string{}}
	server := httptest.NewServer(root)
	defer server.Close()
	got, err := Registry{}.Shard(t.Context(), Credentials{URL: server.URL}, "west")
	if want := (Registered{BaseURL: "https://west:6443", LogicalClusters: 12000, Message: "no route"}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := (Registry{}).Shard(t.Context(), Credentials{URL: server.URL}, "east"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyTheOperatorsOwnCordonIsChanged(t *testing.T) {
	for _, test := range []struct {
		before   string // the annotation, or nothing
		cordoned bool
		after    string
	}{
		{"", true, by}, {by, true, by}, {by, false, ""}, {"", false, ""}, {"admin", true, "admin"}, {"admin", false, "admin"},
	} {
		root := &registry{annotations: map[string]string{}}
		if test.before != "" {
			root.annotations[unschedulableAnnotation] = test.before
		}
		server := httptest.NewServer(root)
		err := Registry{}.Cordon(t.Context(), Credentials{URL: server.URL}, "west", test.cordoned)
		server.Close()
		if got := root.annotations[unschedulableAnnotation]; err != nil || got != test.after {
			t.Errorf("from %q to %t: got %q, %v", test.before, test.cordoned, got, err)
		}
		if wrote := len(root.requests) > 1; wrote != (test.before != test.after) {
			t.Errorf("from %q to %t: the requests are %v", test.before, test.cordoned, root.requests)
		}
	}
}

func TestAShardWithLogicalClustersIsRemovedOnlyIfTheyMayBeLost(t *testing.T) {
	root := &registry{annotations: map[string]string{}}
	server := httptest.NewServer(root)
	defer server.Close()
	err := Registry{}.Remove(t.Context(), Credentials{URL: server.URL}, "west", false)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "holds 12 logical clusters") {
		t.Errorf("got %v", err)
	}
	if err := (Registry{}).Remove(t.Context(), Credentials{URL: server.URL}, "west", true); err != nil {
		t.Error(err)
	}
}
