package workspaces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
)

// endpoints serves one APIExportEndpointSlice, and sends each of its states in turn.
type endpoints chan []string

func (s endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	gv := apisv1alpha1.SchemeGroupVersion.String()
	slice := apisv1alpha1.APIExportEndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: gv, Kind: "APIExportEndpointSlice"}, ObjectMeta: metav1.ObjectMeta{Name: "databases", ResourceVersion: "1"},
	}
	switch query := r.URL.Query(); {
	case r.URL.Path == "/api":
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}})
	case r.URL.Path == "/apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: "v1alpha1"}
		_ = json.NewEncoder(w).Encode(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{
			{Name: "apis.kcp.io", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		}})
	case r.URL.Path == "/apis/"+gv:
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv, APIResources: []metav1.APIResource{
			{Name: "apiexportendpointslices", Kind: "APIExportEndpointSlice", Verbs: metav1.Verbs{"get", "list", "watch"}},
		}})
	case query.Get("fieldSelector") != "metadata.name=databases", query.Get("sendInitialEvents") != "":
		http.Error(w, "{}", http.StatusBadRequest)
	case query.Get("watch") == "":
		_ = json.NewEncoder(w).Encode(apisv1alpha1.APIExportEndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: gv, Kind: "APIExportEndpointSliceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []apisv1alpha1.APIExportEndpointSlice{slice},
		})
	default:
		w.(http.Flusher).Flush()
		for version := 2; ; version++ {
			select {
			case <-r.Context().Done():
				return
			case urls := <-s:
				slice.Status.Endpoints, slice.ResourceVersion = nil, fmt.Sprint(version)
				for _, url := range urls {
					slice.Status.Endpoints = append(slice.Status.Endpoints, apisv1alpha1.APIExportEndpoint{URL: url})
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": slice})
				w.(http.Flusher).Flush()
			}
		}
	}
}

func TestFollowRunsManagerForEachURL(t *testing.T) {
	states, told := make(endpoints), make(chan string, 10)
	server := httptest.NewServer(states)
	defer server.Close()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- workspaces.Follow(ctx, &rest.Config{Host: server.URL}, workspaces.Export("databases"), ctrl.Options{}, func(m ctrl.Manager) error {
			if _, name, _ := strings.Cut(m.GetConfig().Host, "://"); name != workspaces.StepOf(m)+"/clusters/*" {
				t.Errorf("URL %s: StepOf returned %s", m.GetConfig().Host, workspaces.StepOf(m))
			}
			return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
				told <- "begins " + workspaces.StepOf(m)
				<-ctx.Done()
				told <- "ends " + workspaces.StepOf(m)
				return nil
			}))
		})
	}()
	want := func(text string) {
		t.Helper()
		select {
		case got := <-told:
			if got != text {
				t.Errorf("got %s, want %s", got, text)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("timed out waiting for: " + text)
		}
	}
	states <- []string{"https://a"}
	want("begins a")
	states <- []string{"https://a", "https://b"}
	want("begins b")
	states <- []string{"https://b"}
	want("ends a")
	states <- []string{"https://a", "https://b"}
	want("begins a")
	states <- []string{"https://a"}
	want("ends b")
	end()
	want("ends a")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFollowReturnsErrorOfSetup(t *testing.T) {
	states := make(endpoints)
	server := httptest.NewServer(states)
	defer server.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- workspaces.Follow(t.Context(), &rest.Config{Host: server.URL}, workspaces.Export("databases"), ctrl.Options{}, func(ctrl.Manager) error {
			return fmt.Errorf("it cannot")
		})
	}()
	states <- []string{"https://a"}
	if err := <-ended; err == nil || err.Error() != "https://a: it cannot" {
		t.Errorf("got %v", err)
	}
}
