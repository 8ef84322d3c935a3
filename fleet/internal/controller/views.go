package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/identity"
	"github.com/kcplane/kcp/fleet/internal/tunnel"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

var (
	clusters    = v1alpha1.SchemeGroupVersion.WithResource("clusters")
	assignments = v1alpha1.SchemeGroupVersion.WithResource("assignments")
	leases      = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// views serves each agent its own cluster, its own Lease, and what is assigned to its cluster.
type views struct {
	// provider is the name of the logical cluster of the provider.
	provider  logicalcluster.Name
	client    dynamic.Interface
	index     *feed.Index
	authority *identity.Authority
	handler   http.Handler
	tunnels   *tunnel.Tunnels
	sessions  *sessions
	// approvedKey returns the approved key of a Cluster, or "".
	approvedKey func(ctx context.Context, cluster string) (string, error)
	// schemas returns the exported schemas, or nil while they are not known.
	schemas func() *exported
}

// clusterKey is the key of the name of the cluster of a request.
type clusterKey struct{}

func clusterOf(ctx context.Context) string {
	name, _ := ctx.Value(clusterKey{}).(string)
	return name
}

func newViews(provider logicalcluster.Name, client dynamic.Interface, index *feed.Index, authority *identity.Authority) (*views, error) {
	v := &views{provider: provider, client: client, index: index, authority: authority}
	own := func(resource schema.GroupVersionResource) func(ctx context.Context, namespace string) (resources.Objects, error) {
		return func(ctx context.Context, namespace string) (resources.Objects, error) {
			return named{clusterOf(ctx), client.Resource(resource).Namespace(namespace), resource.GroupResource()}, nil
		}
	}
	served := []resources.Resource{
		{StatusOnly: true, Objects: func(ctx context.Context, _ string) (resources.Objects, error) {
			return certified{named{clusterOf(ctx), client.Resource(clusters), clusters.GroupResource()}, v}, nil
		}},
		{StatusOnly: true, Objects: func(ctx context.Context, _ string) (resources.Objects, error) {
			return resources.Mapped{Stored: client.Resource(assignments), Of: assignments.GroupResource(),
				Selected: labels.Set{v1alpha1.ClusterLabel: clusterOf(ctx)}}, nil
		}},
		{StatusOnly: true, Objects: func(ctx context.Context, _ string) (resources.Objects, error) {
			return index.Feed(clusterOf(ctx)), nil
		}},
		{Objects: own(leases)},
	}
	for i, resource := range []string{"clusters", "assignments", "workloads"} {
		text, err := v1alpha1.Definition(resource)
		if err != nil {
			return nil, err
		}
		if served[i].Definition, err = resources.Parse(text); err != nil {
			return nil, err
		}
	}
	var err error
	if served[3].Definition, err = resources.Parse(leaseDefinition); err != nil {
		return nil, err
	}
	v.handler, err = resources.New(served...)
	return v, err
}

// find returns the view of a path: <cluster>/<path of the API>.
func (v *views) find(path string) (virtual.View, string, error) {
	cluster, rest, _ := strings.Cut(path, "/")
	return view{v, cluster}, rest, nil
}

// view is what the agent of one cluster sees.
type view struct {
	*views
	cluster string
}

// Authorize allows the agent everything in its own view, and refuses all others. Before it has a certificate, it may request one.
func (v view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	key, err := v.approvedKey(ctx, v.cluster)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	switch {
	case identity.IsAgent(a.GetUser(), v.cluster, key):
		if a.GetResource() == "leases" && a.GetNamespace() != v1alpha1.Namespace {
			return authorizer.DecisionDeny, "the Lease of the agent is in the namespace " + v1alpha1.Namespace, nil
		}
		return authorizer.DecisionAllow, "", nil
	case v.isBootstrap(a.GetUser()):
		ownCluster := a.GetAPIGroup() == v1alpha1.SchemeGroupVersion.Group && a.GetResource() == "clusters"
		isDiscovery := !a.IsResourceRequest() && a.GetPath() != tunnelPath && a.GetPath() != schemasPath
		if isDiscovery || ownCluster {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "the agent has no certificate yet: approve its request", nil
	}
	return authorizer.DecisionDeny, "only the agent of the cluster may use its view, with a certificate for its approved key", nil
}

func (v view) isBootstrap(u user.Info) bool {
	return identity.IsBootstrap(u, string(v.provider), v.cluster)
}

// Home returns the workspace of the provider, in which bootstrap tokens are reviewed.
func (v view) Home() logicalcluster.Name { return v.provider }

// Serve serves the resources of the view.
func (v view) Serve(_ http.Handler, w http.ResponseWriter, r *http.Request) {
	ctx := context.WithValue(logicalcluster.WithName(r.Context(), v.provider), clusterKey{}, v.cluster)
	ctx, end, err := v.session(ctx)
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	defer end()
	if r.URL.Path == tunnelPath {
		v.serveTunnel(w, r.WithContext(ctx))
		return
	}
	if r.URL.Path == schemasPath {
		v.serveSchemas(w, r.WithContext(ctx))
		return
	}
	v.handler.ServeHTTP(w, r.WithContext(ctx))
}

// named is the one object of a resource with a name.
type named struct {
	name   string
	stored dynamic.ResourceInterface
	of     schema.GroupResource
}

func (n named) check(name string) error {
	if name != n.name {
		return apierrors.NewNotFound(n.of, name)
	}
	return nil
}

func (n named) only(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = metav1.ObjectNameField + "=" + n.name
	return options
}

// Get implements resources.Objects.
func (n named) Get(ctx context.Context, name string, options metav1.GetOptions, below ...string) (*unstructured.Unstructured, error) {
	if err := n.check(name); err != nil {
		return nil, err
	}
	return n.stored.Get(ctx, name, options, below...)
}

// List implements resources.Objects.
func (n named) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return n.stored.List(ctx, n.only(options))
}

// Watch implements resources.Objects.
func (n named) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return n.stored.Watch(ctx, n.only(options))
}

// Create implements resources.Objects.
func (n named) Create(ctx context.Context, u *unstructured.Unstructured, options metav1.CreateOptions,
	below ...string) (*unstructured.Unstructured, error) {
	if u.GetName() != n.name {
		return nil, apierrors.NewForbidden(n.of, u.GetName(), fmt.Errorf("the name must be that of the cluster, %q", n.name))
	}
	return n.stored.Create(ctx, u, options, below...)
}

// Update implements resources.Objects.
func (n named) Update(ctx context.Context, u *unstructured.Unstructured, options metav1.UpdateOptions,
	below ...string) (*unstructured.Unstructured, error) {
	if err := n.check(u.GetName()); err != nil {
		return nil, err
	}
	return n.stored.Update(ctx, u, options, below...)
}

// Delete implements resources.Objects.
func (n named) Delete(ctx context.Context, name string, options metav1.DeleteOptions, below ...string) error {
	if err := n.check(name); err != nil {
		return err
	}
	return n.stored.Delete(ctx, name, options, below...)
}

// certified is the Cluster of an agent. It accepts reports and certificate signing requests, and issues certificates to agents with one.
type certified struct {
	named
	views *views
}

// Update implements resources.Objects: it takes only the fields of the status that belong to the agent.
func (c certified) Update(ctx context.Context, u *unstructured.Unstructured, options metav1.UpdateOptions,
	below ...string) (*unstructured.Unstructured, error) {
	stored, err := c.Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if u.GetResourceVersion() != stored.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.of, c.name, fmt.Errorf("the object has changed"))
	}
	reported, _, _ := unstructured.NestedMap(u.Object, "status")
	status, _, _ := unstructured.NestedMap(stored.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	approved, _, _ := unstructured.NestedString(stored.Object, "spec", "approvedKey")
	who, _ := request.UserFrom(ctx)
	isAgent := who != nil && identity.IsAgent(who, c.name, approved)
	if isAgent {
		for _, field := range []string{"version", "capacity", "requested", "resources"} {
			if value, ok := reported[field]; ok {
				status[field] = value
			} else {
				delete(status, field)
			}
		}
	}
	former, _ := status["request"].(string)
	if wanted, _ := reported["request"].(string); wanted != "" && wanted != former {
		if err := c.requested(status, wanted, approved, isAgent); err != nil {
			return nil, err
		}
	}
	stored.Object["status"] = status
	return c.stored.UpdateStatus(ctx, stored, options)
}

// requested sets a new certificate signing request. An agent with a certificate receives the next one at once. Everybody else waits
// for the approval, and cannot replace the request of an agent that has a certificate.
func (c certified) requested(status map[string]any, wanted, approved string, isAgent bool) error {
	fingerprint, err := identity.Fingerprint(wanted)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	certificate, _ := status["certificate"].(string)
	if !isAgent && certificate != "" {
		return apierrors.NewForbidden(c.of, c.name, fmt.Errorf("the agent of the cluster has a certificate already; "+
			"to replace the agent, run kubectl kcp fleet join --replace"))
	}
	status["request"], status["requestedKey"] = wanted, fingerprint
	if isAgent {
		if status["certificate"], err = c.views.authority.Issue(c.name, approved, wanted, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// leaseDefinition describes the Leases of agents.
var leaseDefinition = []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: leases.coordination.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/58302"}
spec:
  group: coordination.k8s.io
  scope: Namespaced
  names: {kind: Lease, listKind: LeaseList, plural: leases, singular: lease}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              acquireTime: {type: string, format: date-time}
              holderIdentity: {type: string, maxLength: 253}
              leaseDurationSeconds: {type: integer, format: int32}
              leaseTransitions: {type: integer, format: int32}
              renewTime: {type: string, format: date-time}
              preferredHolder: {type: string, maxLength: 253}
              strategy: {type: string, maxLength: 253}
`)
