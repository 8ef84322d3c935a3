package cacheserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestNoUpdateGoesBackwards(t *testing.T) {
	s := start(t, nil)
	c := in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports)
	at := func(incarnation, term, version string) map[string]string {
		return map[string]string{Incarnation: incarnation, LeaderTerm: term, OriginalResourceVersion: version}
	}
	create(t, c, object("things", at("i", "2", "100")))
	for _, step := range []struct {
		name        string
		annotations map[string]string
		refused     bool
	}{
		{"a former leader", at("i", "1", "101"), true},
		{"an earlier version", at("i", "2", "99"), true},
		{"a version that is smaller as a number only", at("i", "2", "9"), true},
		{"without a term", map[string]string{Incarnation: "i", OriginalResourceVersion: "101"}, true},
		{"without a version", map[string]string{Incarnation: "i", LeaderTerm: "2"}, true},
		{"the same again", at("i", "2", "100"), false},
		{"a later version", at("i", "2", "1000"), false},
		{"a later leader", at("i", "10", "1000"), false},
		{"an earlier version of the later leader", at("i", "10", "999"), true},
		{"another incarnation", at("j", "1", "1"), false},
		{"the former incarnation", at("i", "1", "1"), false},
	} {
		_, err := c.Update(t.Context(), object("things", step.annotations), metav1.UpdateOptions{})
		if apierrors.IsConflict(err) != step.refused || !step.refused && err != nil {
			t.Errorf("an update by %s: %v", step.name, err)
		}
		if len(step.annotations) < 3 {
			continue // a patch keeps the annotations that it does not have
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": step.annotations}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Patch(t.Context(), "things", types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) != step.refused || !step.refused && err != nil {
			t.Errorf("a patch by %s: %v", step.name, err)
		}
	}
}

func TestOneShardCannotUseUpTheServer(t *testing.T) {
	s := start(t, nil)
	s.handler.limits.watches, s.handler.limits.requests, s.handler.limits.patience = 2, 1, time.Millisecond
	alpha, beta := s.shard(t, "alpha"), s.shard(t, "beta")
	c := in(t, alpha, "*", "*").Resource(exports)
	list, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	first := follow(t, c, options)
	follow(t, c, options)
	path := "/services/cache/shards/*/clusters/*" + exportsPath
	refused := func(who *rest.Config, path string, want int) {
		t.Helper()
		if code, message, header := send(t, who, http.MethodGet, path, ""); code != want || want == 429 && header.Get("Retry-After") == "" {
			t.Errorf("GET %s: %d %s", path, code, message)
		}
	}
	watching := path + "?watch=true&timeoutSeconds=1&resourceVersion=" + list.GetResourceVersion()
	refused(alpha, watching, http.StatusTooManyRequests)
	refused(beta, watching, http.StatusOK)
	first.Stop()
	for code := 0; code != http.StatusOK; {
		code, _, _ = send(t, alpha, http.MethodGet, watching, "")
	}
	for range maxLists {
		end, err := s.handler.limits.beginList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	refused(beta, path, http.StatusTooManyRequests)
	end, err := s.handler.limits.begin("kcp://shard/alpha", false)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	refused(alpha, "/services/cache/shards/*/clusters/*/apis", http.StatusTooManyRequests)
	refused(beta, "/services/cache/shards/*/clusters/*/apis", http.StatusOK)
}

func TestBodiesAreLimited(t *testing.T) {
	s := start(t, nil)
	path := "/services/cache/shards/alpha/clusters/one" + exportsPath
	body := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"x"},"spec":"` + strings.Repeat("x", maxBody) + `"}`
	if code, message, _ := send(t, s.shard(t, "alpha"), http.MethodPost, path, body); code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", code, message)
	}
	for _, body := range []string{
		"", "{", "[]", "null", `{"kind":"APIExport"}`, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":[]}`,
		`{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"x","labels":["a"]}}`,
		`{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExportList","metadata":{},"items":[]}`,
	} {
		if code, message, _ := send(t, s.shard(t, "alpha"), http.MethodPost, path, body); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, code, message)
		}
	}
	if code, message, _ := send(t, s.shard(t, "alpha"), http.MethodPost, path+"?dryRun=All", body); code != http.StatusBadRequest {
		t.Errorf("a dry run: %d %s", code, message)
	}
	code, message, _ := send(t, s.shard(t, "alpha"), http.MethodPost, path, "x", "Content-Type", "application/yaml")
	if code != http.StatusUnsupportedMediaType {
		t.Errorf("YAML: %d %s", code, message)
	}
}

func TestWatchesEndWhenTheServerStops(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	s := start(t, func(c *Config) { c.Stopping = stopping })
	w := follow(t, in(t, s.shard(t, "alpha"), "*", "*").Resource(exports), metav1.ListOptions{})
	create(t, in(t, s.shard(t, "alpha"), "alpha", "one").Resource(exports), object("things", nil))
	if got := next(t, w); got != "ADDED alpha/one/things" {
		t.Error(got)
	}
	stop()
	for range w.ResultChan() {
	}
}
