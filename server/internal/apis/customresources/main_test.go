package customresources

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var backend *storage.Backend

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "customresources-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(directory)
		server, err := etcd.Start(context.Background(), etcd.Config{Directory: filepath.Join(directory, "etcd")})
		if err != nil {
			panic(err)
		}
		defer server.Stop()
		backend = storage.NewBackend(server.Client(), "", 0)
		defer backend.Close()
		return m.Run()
	}())
}

// restOptions are the options of objects below a root for the test.
func restOptions(t *testing.T) generic.RESTOptionsGetter {
	codec := apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	options := serveroptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/"+strings.ReplaceAll(t.Name(), "/", "_"), codec))
	return options.CreateRESTOptionsGetter(&serveroptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil)
}

// shard is a handler with definitions that the test sets.
type shard struct {
	*Handler
	t      *testing.T
	events *watch.RaceFreeFakeWatcher
	fed    *informers.Informer

	mu     sync.Mutex
	stored map[string]*apiextensionsv1.CustomResourceDefinition
}

func newShard(t *testing.T) *shard {
	t.Helper()
	s := &shard{t: t, events: watch.NewRaceFreeFake(), stored: map[string]*apiextensionsv1.CustomResourceDefinition{}}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &apiextensionsv1.CustomResourceDefinitionList{}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return s.events, nil },
	}
	s.fed = informers.New(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), &apiextensionsv1.CustomResourceDefinition{}, lw, nil)
	var err error
	s.Handler, err = New(Config{
		Definitions: informers.Lister[*apiextensionsv1.CustomResourceDefinition]{Informer: s.fed}, Live: s.live,
		Exports:     informers.Lister[*apisv1alpha2.APIExport]{Informer: silent("apiexports", &apisv1alpha2.APIExport{})},
		Schemas:     informers.Lister[*apisv1alpha1.APIResourceSchema]{Informer: silent("apiresourceschemas", &apisv1alpha1.APIResourceSchema{})},
		Conversions: informers.Lister[*apisv1alpha1.APIConversion]{Informer: silent("apiconversions", &apisv1alpha1.APIConversion{})},
		Bindings:    informers.Lister[*apisv1alpha2.APIBinding]{Informer: silent("apibindings", &apisv1alpha2.APIBinding{})},
		Options:     backend.Custom(restOptions(t)), AllOptions: backend.All(restOptions(t)),
		BoundOptions: func(identity string) generic.RESTOptionsGetter {
			return backend.Bound(restOptions(t), identity)
		},
		Admission:  admission.NewChainHandler(),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), ServiceResolver: webhook.NewDefaultServiceResolver(),
		AuthResolver:   webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, &rest.Config{}, nil),
		RequestTimeout: time.Second, MinRequestTimeout: time.Minute, MaxRequestBodyBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.fed.Run(ctx)
	}()
	<-s.fed.Synced()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// silent returns an informer without events.
func silent(resource string, example runtime.Object) *informers.Informer {
	return informers.New(apisv1alpha2.SchemeGroupVersion.WithResource(resource), example, nil, nil)
}

func (s *shard) live(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if crd, ok := s.stored[string(cluster)+"|"+name]; ok {
		return crd.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
}

// set stores a definition in a cluster, and returns when the handler has it.
func (s *shard) set(cluster string, crd *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	s.send(cluster, crd)
	s.settle()
}

func (s *shard) send(cluster string, crd *apiextensionsv1.CustomResourceDefinition) {
	crd = crd.DeepCopy()
	crd.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster}
	s.mu.Lock()
	_, existed := s.stored[cluster+"|"+crd.Name]
	s.stored[cluster+"|"+crd.Name] = crd
	s.mu.Unlock()
	if existed {
		s.events.Modify(crd.DeepCopy())
		return
	}
	s.events.Add(crd.DeepCopy())
}

// delete removes a definition, and returns when the handler has removed it.
func (s *shard) delete(cluster, name string) {
	s.t.Helper()
	s.mu.Lock()
	crd := s.stored[cluster+"|"+name]
	delete(s.stored, cluster+"|"+name)
	s.mu.Unlock()
	s.events.Delete(crd.DeepCopy())
	s.settle()
}

// settle waits until the handler has seen every event so far.
func (s *shard) settle() {
	s.t.Helper()
	marker := widgets(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Name = "marker." + time.Now().String() })
	marker.Status.Conditions = nil
	marker.Annotations = map[string]string{logicalcluster.AnnotationKey: "marker"}
	s.events.Add(marker)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, ok, _ := s.fed.Indexer().Get(marker); ok {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the informer did not get its events")
		}
	}
}

var requestInfos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// in serves the requests of one cluster.
func (s *shard) in(cluster string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := requestInfos.NewRequestInfo(r)
		if err != nil {
			panic(err)
		}
		c := logicalcluster.Cluster{Name: logicalcluster.Name(cluster)}
		if cluster == "*" {
			c = logicalcluster.Cluster{Wildcard: true}
		}
		ctx := logicalcluster.WithCluster(request.WithRequestInfo(audit.WithAuditContext(r.Context()), info), c)
		s.ServeHTTP(w, r.WithContext(ctx))
	})
}

type answer struct {
	code int
	body map[string]any
	text string
}

func (s *shard) do(cluster, method, path, body string, headers ...string) answer {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.in(cluster).ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body)
	a := answer{code: w.Code, text: string(text)}
	_ = json.Unmarshal(text, &a.body)
	return a
}

func (s *shard) want(code int, cluster, method, path, body string, headers ...string) answer {
	s.t.Helper()
	a := s.do(cluster, method, path, body, headers...)
	if a.code != code {
		s.t.Fatalf("%s %s in %s: got %d %s, want %d", method, path, cluster, a.code, a.text, code)
	}
	return a
}

// widgets returns an established definition, as the API server would store it.
func widgets(changes ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: schemaOf("size"),
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size"},
				},
			}},
		},
	}
	for _, change := range changes {
		change(crd)
	}
	apiextensionsapiserver.Scheme.Default(crd)
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
	return crd
}

// schemaOf has integers in its spec.
func schemaOf(fields ...string) *apiextensionsv1.CustomResourceValidation {
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, f := range fields {
		properties[f] = apiextensionsv1.JSONSchemaProps{Type: "integer", Maximum: ptr.To(1e6)}
	}
	return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: properties}},
	}}
}

func withFields(fields ...string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Schema = schemaOf(fields...) }
}

func terminating(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
	})
	return crd
}
