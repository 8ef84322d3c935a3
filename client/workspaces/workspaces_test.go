package workspaces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kcplane/kcp/client/workspaces"
)

// tenants serves the ConfigMaps and Namespaces of some logical clusters, as a virtual workspace does.
type tenants struct {
	mu      sync.Mutex
	objects map[string][]client.Object // by resource
	written []string                   // method and path
	events  chan string                // sent to the next watch of ConfigMaps
}

func configMap(cluster, namespace, name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"color": color},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: "1", Labels: map[string]string{"color": color},
			Annotations: map[string]string{workspaces.ClusterAnnotation: cluster},
		},
	}
}

func namespace(cluster, name string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "1", Annotations: map[string]string{workspaces.ClusterAnnotation: cluster},
	}}
}

var resources = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
	{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "update"}},
	{Name: "namespaces", Kind: "Namespace", Verbs: metav1.Verbs{"get", "list", "watch"}},
}}

func (s *tenants) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path, everywhere := strings.CutPrefix(r.URL.Path, "/services/view/clusters/*")
	switch resource := strings.TrimPrefix(path, "/api/v1/"); {
	case !everywhere:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written = append(s.written, r.Method+" "+r.URL.Path)
		_ = json.NewEncoder(w).Encode(configMap("x", "x", "x", "x"))
	case path == "/api":
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		_ = json.NewEncoder(w).Encode(metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}})
	case path == "/api/v1":
		_ = json.NewEncoder(w).Encode(resources)
	case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil).ErrStatus)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case event := <-s.of(resource):
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			}
		}
	default:
		kind := map[string]string{"configmaps": "ConfigMapList", "namespaces": "NamespaceList"}[resource]
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"resourceVersion": "1"}, "items": s.objects[resource]})
	}
}

func (s *tenants) of(resource string) chan string {
	if resource == "configmaps" {
		return s.events
	}
	return nil
}

// start returns a manager that runs until the test ends.
func start(t *testing.T, s *tenants, setup func(ctrl.Manager)) ctrl.Manager {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	again := true
	options := ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = &again
	manager, err := workspaces.NewManager(&rest.Config{}, server.URL+"/services/view", options)
	if err != nil {
		t.Fatal(err)
	}
	setup(manager)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
	return manager
}

func ada(t *testing.T) context.Context { return workspaces.In(t.Context(), "ada") }

func two() *tenants {
	return &tenants{events: make(chan string), objects: map[string][]client.Object{
		"configmaps": {
			configMap("ada", "default", "main", "red"), configMap("ada", "other", "main", "red"), configMap("ada", "default", "second", "blue"),
			configMap("bob", "default", "main", "red"),
		},
		"namespaces": {namespace("ada", "default"), namespace("ada", "other"), namespace("bob", "default")},
	}}
}

// described returns the objects as <cluster> <namespace>/<name>, sorted.
func described(items []corev1.ConfigMap) []string {
	var all []string
	for _, o := range items {
		all = append(all, workspaces.ClusterOf(&o)+" "+o.Namespace+"/"+o.Name)
	}
	slices.Sort(all)
	return all
}

func TestClientReadsInWorkspaceOfContext(t *testing.T) {
	manager := start(t, two(), func(m ctrl.Manager) {
		err := m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "color", func(o client.Object) []string {
			if strings.Contains(o.GetNamespace()+o.GetName(), "|") {
				t.Errorf("the indexer got an object with the name %s/%s", o.GetNamespace(), o.GetName())
			}
			return []string{o.(*corev1.ConfigMap).Data["color"]}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	c := manager.GetClient()
	got := &corev1.ConfigMap{}
	if err := c.Get(workspaces.In(t.Context(), "bob"), client.ObjectKey{Namespace: "default", Name: "main"}, got); err != nil {
		t.Fatal(err)
	}
	if workspaces.ClusterOf(got) != "bob" || got.Namespace != "default" || got.Name != "main" {
		t.Errorf("got %+v", got.ObjectMeta)
	}
	of := &corev1.Namespace{}
	if err := c.Get(ada(t), client.ObjectKey{Name: "other"}, of); err != nil || of.Name != "other" || workspaces.ClusterOf(of) != "ada" {
		t.Errorf("got %+v, %v", of.ObjectMeta, err)
	}
	err := c.Get(workspaces.In(t.Context(), "bob"), client.ObjectKey{Name: "other"}, of)
	if !apierrors.IsNotFound(err) || strings.Contains(err.Error(), "bob") {
		t.Errorf("got %v", err)
	}
	for name, test := range map[string]struct {
		ctx     context.Context
		options []client.ListOption
		want    []string
	}{
		"a workspace":                            {ada(t), nil, []string{"ada default/main", "ada default/second", "ada other/main"}},
		"a namespace":                            {ada(t), []client.ListOption{client.InNamespace("default")}, []string{"ada default/main", "ada default/second"}},
		"labels":                                 {ada(t), []client.ListOption{client.MatchingLabels{"color": "blue"}}, []string{"ada default/second"}},
		"a field":                                {ada(t), []client.ListOption{client.MatchingFields{"color": "red"}}, []string{"ada default/main", "ada other/main"}},
		"a field in a namespace":                 {ada(t), []client.ListOption{client.MatchingFields{"color": "red"}, client.InNamespace("other")}, []string{"ada other/main"}},
		"a workspace without objects":            {workspaces.In(t.Context(), "eve"), nil, nil},
		"all workspaces":                         {workspaces.Everywhere(t.Context()), []client.ListOption{client.MatchingLabels{"color": "red"}}, []string{"ada default/main", "ada other/main", "bob default/main"}},
		"a field in all workspaces":              {workspaces.Everywhere(t.Context()), []client.ListOption{client.MatchingFields{"color": "blue"}}, []string{"ada default/second"}},
		"a field in a workspace without objects": {workspaces.In(t.Context(), "eve"), []client.ListOption{client.MatchingFields{"color": "red"}}, nil},
	} {
		list := &corev1.ConfigMapList{}
		if err := c.List(test.ctx, list, test.options...); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(test.want, described(list.Items)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	all := &corev1.NamespaceList{}
	if err := c.List(ada(t), all); err != nil || len(all.Items) != 2 {
		t.Errorf("%d namespaces: %v", len(all.Items), err)
	}
}

func TestClientWritesInWorkspaceOfContext(t *testing.T) {
	server := two()
	c := start(t, server, func(ctrl.Manager) {}).GetClient()
	if err := c.Update(ada(t), configMap("ada", "default", "main", "green")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"PUT /services/view/clusters/ada/api/v1/namespaces/default/configmaps/main"}; !slices.Equal(server.written, want) {
		t.Errorf("got requests %v", server.written)
	}
	for text, ctx := range map[string]context.Context{"has no workspace": t.Context(), "for all workspaces": workspaces.Everywhere(t.Context())} {
		for _, err := range []error{
			c.Update(ctx, configMap("ada", "default", "main", "green")),
			c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "main"}, &corev1.ConfigMap{}),
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
	}
	if len(server.written) != 1 {
		t.Errorf("got requests %v", server.written)
	}
}

// recorder sends the requests that it reconciles.
type recorder chan string

func (r recorder) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster, err := workspaces.Of(ctx)
	r <- cluster + " " + request.String()
	return ctrl.Result{}, err
}

func TestControllerReconcilesEachObjectInItsWorkspace(t *testing.T) {
	server, asked := two(), make(recorder, 100)
	start(t, server, func(m ctrl.Manager) {
		err := builder.TypedControllerManagedBy[workspaces.Request](m).Named("recorder").
			Watches(&corev1.ConfigMap{}, workspaces.Lift(&handler.EnqueueRequestForObject{})).
			Watches(&corev1.Namespace{}, workspaces.Lift(handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
				cluster, err := workspaces.Of(ctx)
				if err != nil || cluster != workspaces.ClusterOf(o) {
					t.Errorf("%s is mapped in %s: %v", o.GetName(), cluster, err)
				}
				return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: "mapped-" + o.GetName()}}}
			}))).Complete(workspaces.Each(asked))
		if err != nil {
			t.Fatal(err)
		}
	})
	want := func(requests ...string) {
		t.Helper()
		var got []string
		for range requests {
			select {
			case one := <-asked:
				got = append(got, one)
			case <-time.After(30 * time.Second):
				t.Fatal("timed out waiting for a request, got", got)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(requests, got); diff != "" {
			t.Error(diff)
		}
	}
	want("ada /mapped-default", "ada /mapped-other", "ada default/main", "ada default/second", "ada other/main", "bob /mapped-default", "bob default/main")
	for _, kind := range []string{"MODIFIED", "DELETED"} {
		object, err := json.Marshal(configMap("bob", "default", "main", kind))
		if err != nil {
			t.Fatal(err)
		}
		server.events <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object)
		want("bob default/main")
	}
}

func TestOfRefusesContextWithoutWorkspace(t *testing.T) {
	if _, err := workspaces.Of(t.Context()); err == nil {
		t.Error("a context without a workspace was accepted")
	}
	if cluster, err := workspaces.Of(ada(t)); cluster != "ada" || err != nil {
		t.Errorf("got %s, %v", cluster, err)
	}
}
