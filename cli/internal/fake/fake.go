// Package fake is an in-memory server of workspaces for tests of the plugins.
package fake

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// Server is a tree of workspaces.
type Server struct {
	*httptest.Server
	// Forbidden are the paths without access.
	Forbidden map[string]bool
	// Home is the path of the home workspace, if there is one.
	Home string
	// Types are the names of the workspace types in root.
	Types []string
	// Creating is called for each new workspace. It can return an error or set another phase than Ready.
	Creating func(ws *tenancyv1alpha1.Workspace) error
	// Watched returns what a watch of a workspace sends, for the n-th watch from 0, and may change the workspace. Then the
	// watch ends, unless Hold is set.
	Watched func(n int, ws *tenancyv1alpha1.Workspace) []Event
	// Hidden are the resources without read access, such as apiexports.
	Hidden map[string]bool
	// Binding updates the status of a binding when it is created and read.
	Binding func(*apisv1alpha2.APIBinding)
	// Hold keeps watches open.
	Hold bool
	// Migrating updates a migration each time that it is read. Without it, root serves no migrations.
	Migrating func(*migrationv1alpha1.LogicalClusterMigration)

	mu       sync.Mutex
	clusters map[string]*cluster // by path
	watches  int
	version  int
	requests []string

	migrations map[string]*migrationv1alpha1.LogicalClusterMigration // by name
}

// Event is an event of a watch.
type Event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// cluster is a logical cluster and the workspaces in it.
type cluster struct {
	path, name, typeName string
	workspaces           map[string]*tenancyv1alpha1.Workspace
	sharing
}

func newCluster(path, name, typeName string) *cluster {
	return &cluster{path: path, name: name, typeName: typeName, workspaces: map[string]*tenancyv1alpha1.Workspace{}}
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: name, APIVersion: tenancyv1alpha1.SchemeGroupVersion.String()}
}

// New starts a server of the workspaces with the given paths below root, which stops when the test ends. Their logical clusters are
// named c0, c1 and so on; the one of root is named root.
func New(t testing.TB, paths ...string) *Server {
	s := &Server{Forbidden: map[string]bool{}, Types: []string{"organization", "universal"}, clusters: map[string]*cluster{}}
	s.clusters["root"] = newCluster("root", "root", "root:root")
	for _, path := range paths {
		i := strings.LastIndex(path, ":")
		ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: path[i+1:]}}
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
		s.add(s.clusters[path[:i]], ws)
	}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// add completes the fields of a workspace and creates its logical cluster.
func (s *Server) add(parent *cluster, ws *tenancyv1alpha1.Workspace) {
	path := parent.path + ":" + ws.Name
	s.version++
	ws.TypeMeta = kind("Workspace")
	ws.UID, ws.ResourceVersion = types.UID(fmt.Sprintf("uid-%d", s.version)), strconv.Itoa(s.version)
	if ws.Spec.Type == nil {
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal"}
	}
	if ws.Spec.Type.Path == "" {
		ws.Spec.Type.Path = "root"
	}
	ws.Spec.Cluster = fmt.Sprintf("c%d", len(s.clusters)-1)
	ws.Spec.URL = "https://kcp.example.com/clusters/" + path
	metav1.SetMetaDataAnnotation(&ws.ObjectMeta, tenancyv1alpha1.ShardAnnotation, "east")
	parent.workspaces[ws.Name] = ws
	s.clusters[path] = newCluster(path, ws.Spec.Cluster, ws.Spec.Type.String())
}

// CA returns the certificate authority of the server.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// Cluster returns the name of the logical cluster with a path.
func (s *Server) Cluster(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[path].name
}

// Requests returns the requests so far, as "GET /clusters/…" without queries.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	rest, below := strings.CutPrefix(r.URL.Path, "/clusters/")
	address, api, _ := strings.Cut(rest, "/")
	if !below || r.Header.Get("Authorization") != "Bearer secret" {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	c := s.find(address)
	switch {
	case c == nil && strings.Contains(address, ":"):
		refuse(w, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), address))
	case c == nil || s.Forbidden[c.path]:
		refuse(w, apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("workspace access not permitted")))
	case s.serveSharing(w, r, c, api), s.serveMigrations(w, r, c, api), serveShards(w, c, api):
	case api == "apis/core.kcp.io/v1alpha1/logicalclusters/cluster":
		reply(w, http.StatusOK, c.object())
	case api == "apis/tenancy.kcp.io/v1alpha1/workspacetypes":
		s.serveTypes(w, c)
	case strings.HasPrefix(api+"/", "apis/tenancy.kcp.io/v1alpha1/workspaces/"):
		s.serveWorkspaces(w, r, c, strings.TrimPrefix(strings.TrimPrefix(api, "apis/tenancy.kcp.io/v1alpha1/workspaces"), "/"))
	default:
		http.NotFound(w, r)
	}
}

// find returns the logical cluster with a path, which can start with the name of a logical cluster.
func (s *Server) find(address string) *cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, rest, below := strings.Cut(address, ":")
	for _, c := range s.clusters {
		switch {
		case c.name != first:
		case below:
			return s.clusters[c.path+":"+rest]
		default:
			return c
		}
	}
	return s.clusters[address]
}

func (c *cluster) object() *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{
		corev1alpha1.PathAnnotation: c.path, tenancyv1alpha1.TypeAnnotation: c.typeName, corev1alpha1.ClusterAnnotation: c.name,
	}}}
	lc.APIVersion, lc.Kind = corev1alpha1.SchemeGroupVersion.String(), "LogicalCluster"
	lc.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	return lc
}

func (s *Server) serveTypes(w http.ResponseWriter, c *cluster) {
	list := tenancyv1alpha1.WorkspaceTypeList{TypeMeta: kind("WorkspaceTypeList")}
	if c.path == "root" {
		for _, name := range s.Types {
			list.Items = append(list.Items, tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) serveWorkspaces(w http.ResponseWriter, r *http.Request, c *cluster, name string) {
	switch {
	case r.Method == http.MethodPost:
		s.create(w, r, c)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, c)
	case name == "~" && s.Home != "":
		home := &tenancyv1alpha1.Workspace{TypeMeta: kind("Workspace")}
		home.Name, home.Spec.URL = "cluster", "https://kcp.example.com/clusters/"+s.Cluster(s.Home)
		reply(w, http.StatusOK, home)
	case name == "":
		s.list(w, r, c)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if ws := c.workspaces[name]; ws != nil {
			reply(w, http.StatusOK, ws)
			return
		}
		refuse(w, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), name))
	}
}

// list returns pages of at most three objects.
func (s *Server) list(w http.ResponseWriter, r *http.Request, c *cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest("a list without a limit"))
		return
	}
	var names []string
	for name := range c.workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	list := tenancyv1alpha1.WorkspaceList{TypeMeta: kind("WorkspaceList")}
	list.ResourceVersion = strconv.Itoa(s.version)
	selected, selective := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	for _, name := range names {
		switch {
		case selective && name != selected:
		case name <= r.URL.Query().Get("continue"):
		case len(list.Items) == min(limit, 3):
			list.Continue = list.Items[len(list.Items)-1].Name
		default:
			list.Items = append(list.Items, *c.workspaces[name])
		}
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, c *cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ws := &tenancyv1alpha1.Workspace{}
	if err := json.NewDecoder(r.Body).Decode(ws); err != nil || ws.Kind != "Workspace" {
		refuse(w, apierrors.NewBadRequest(fmt.Sprintf("%v in a body of kind %q", err, ws.Kind)))
		return
	}
	if c.workspaces[ws.Name] != nil {
		refuse(w, apierrors.NewAlreadyExists(tenancyv1alpha1.Resource("workspaces"), ws.Name))
		return
	}
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	if s.Creating != nil {
		if err := s.Creating(ws); err != nil {
			refuse(w, err)
			return
		}
	}
	s.add(c, ws)
	reply(w, http.StatusCreated, ws)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, c *cluster) {
	name, selected := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !selected || r.URL.Query().Get("resourceVersion") == "" {
		refuse(w, apierrors.NewBadRequest("a watch of more than one workspace, or from nowhere"))
		return
	}
	s.mu.Lock()
	var events []Event
	if s.Watched != nil {
		events = s.Watched(s.watches, c.workspaces[name])
	}
	s.watches++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for _, event := range events {
		_ = json.NewEncoder(w).Encode(event)
	}
	_ = http.NewResponseController(w).Flush()
	if s.Hold {
		<-r.Context().Done()
	}
}

// State returns a copy of a workspace in another phase and with a later version.
func State(ws *tenancyv1alpha1.Workspace, phase corev1alpha1.LogicalClusterPhase,
	initializers ...corev1alpha1.LogicalClusterInitializer) *tenancyv1alpha1.Workspace {
	next := ws.DeepCopy()
	next.Status.Phase, next.Status.Initializers = phase, initializers
	next.ResourceVersion = ws.ResourceVersion + "0"
	return next
}

func reply(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, err error) {
	status := err.(apierrors.APIStatus).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	reply(w, int(status.Code), status)
}
