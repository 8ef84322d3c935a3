// Package pods shows the pods of a workspace: those of its namespaces on the clusters that run them. Nothing is stored: each request goes
// to the agents of these clusters, through the connections that they have opened. kcp reads pods here, as objects with virtual storage, and
// has authorized its users before.
package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

const (
	// callTimeout is the maximum time of a request that is not a stream, until the last byte of its response.
	callTimeout = 10 * time.Second
	// streamTimeout is the maximum time of a stream.
	streamTimeout = 4 * time.Hour
	// maxBytes is the maximum size of a response that is not a stream.
	maxBytes = 8 << 20
)

var (
	resource = corev1.SchemeGroupVersion.WithResource("pods")
	errLarge = errors.New("its response is too large")
)

// Config of the pods of all workspaces.
type Config struct {
	// Assignments returns the Assignments of a workspace.
	Assignments func(ctx context.Context, workspace string) ([]v1alpha1.Assignment, error)
	// To returns what sends requests to the agent of a cluster.
	To func(cluster string) (http.RoundTripper, error)
}

// Pods serves the pods of all workspaces.
type Pods struct {
	config         Config
	handler        http.Handler
	calls, streams *limits
	versions       *versions
	watches        watches
}

// source is a namespace of a workspace on one cluster.
type source struct{ assignment, uid, cluster, namespace string }

// path returns the path of the source at the agent of its cluster. The agent knows the name of the namespace there.
func (s source) path() string { return "/assignments/" + s.assignment }

// sources returns where the pods of a workspace are, sorted: in one namespace, or in all if it is empty.
func (p *Pods) sources(ctx context.Context, workspace, namespace string) ([]source, error) {
	list, err := p.config.Assignments(ctx, workspace)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var found []source
	for i := range list {
		a := &list[i]
		if a.Spec.Workspace == workspace && (namespace == "" || a.Spec.Namespace == namespace) {
			found = append(found, source{a.Name, string(a.UID), a.Spec.Cluster, a.Spec.Namespace})
		}
	}
	slices.SortFunc(found, func(a, b source) int { return strings.Compare(a.cluster+"/"+a.namespace, b.cluster+"/"+b.namespace) })
	return found, nil
}

// objects are the pods of one namespace of a workspace, or of all. It implements resources.Objects.
type objects struct {
	resources.Objects // only for the methods that change objects, which are never called: serveDelete deletes pods

	*Pods
	workspace, namespace string
}

// action is what happens to pods in a request.
type action string

const (
	read    action = "read"
	deleted action = "deleted"
)

// unreachable returns the error for consumers of a request to a source that failed.
func unreachable(s source, a action, err error) error {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsBadRequest(err),
		apierrors.IsTooManyRequests(err), apierrors.IsConflict(err):
		return err
	case a == deleted && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && !unauthorized(err):
		return refused(s, err)
	case apierrors.IsForbidden(err):
		err = errors.New("its agent has no permission: apply the manifest of kubectl kcp fleet join again")
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("its agent does not respond in time")
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the pods on cluster %s cannot be %s: %v", s.cluster, a, err))
}

// unauthorized reports whether RBAC of the cluster refused a request of its agent. Policies and webhooks refuse with the same status.
func unauthorized(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is forbidden: User ") && strings.Contains(err.Error(), " cannot ")
}

// refused returns the error for consumers of a deletion that a policy or a webhook of the cluster refuses.
func refused(s source, err error) error {
	status := apierrors.NewForbidden(resource.GroupResource(), "", err)
	status.ErrStatus.Message = fmt.Sprintf("cluster %s refuses the deletion: %v", s.cluster, err)
	status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: virtual.CauseDeletionRefused, Message: err.Error()}}
	return status
}

// client returns a client of a source.
func (p *Pods) client(s source, stream bool) (dynamic.ResourceInterface, error) {
	transport, err := p.config.To(s.cluster)
	if err != nil {
		return nil, err
	}
	if !stream {
		transport = bounded{transport}
	}
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://cluster" + s.path(), QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		return nil, err
	}
	return client.Resource(resource), nil
}

// bounded limits the size of responses.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{response.Body, maxBytes}
	}
	return response, err
}

type limitedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *limitedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.left -= n; b.left < 0 {
		return 0, errLarge
	}
	return n, err
}

// shown changes a pod of a cluster to the form that its workspace sees.
func shown(u *unstructured.Unstructured, s source) {
	u.SetNamespace(s.namespace)
	u.SetManagedFields(nil)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.ClusterLabel] = s.cluster
	u.SetAnnotations(annotations)
}

// call calls do with a client of each source, several at a time. It returns the first error, and rather one that is not NotFound.
func (o objects) call(ctx context.Context, a action, all []source,
	do func(context.Context, int, dynamic.ResourceInterface) error) error {
	if len(all) > maxSources {
		return apierrors.NewBadRequest(fmt.Sprintf("the pods are in more than %d namespaces: name one of them", maxSources))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := o.calls.ofWorkspace.begin(o.workspace)
	if err != nil {
		return err
	}
	defer done()
	failed := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, s := range all {
		group.Go(func() error {
			done, err := o.calls.ofCluster.begin(s.cluster)
			if err != nil {
				failed[i] = err
				return nil
			}
			defer done()
			client, err := o.client(s, false)
			if err == nil {
				err = do(ctx, i, client)
			}
			if err != nil {
				failed[i] = unreachable(s, a, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	var first error
	for _, err := range failed {
		if err != nil && (first == nil || apierrors.IsNotFound(first)) {
			first = err
		}
	}
	return first
}

// find returns the pod with a name, and where it is. If several clusters have one, it is that of the first cluster.
func (o objects) find(ctx context.Context, name string) (source, *unstructured.Unstructured, error) {
	missing := apierrors.NewNotFound(resource.GroupResource(), name)
	all, err := o.sources(ctx, o.workspace, o.namespace)
	if err != nil {
		return source{}, nil, err
	}
	if len(all) == 0 || o.namespace == "" {
		return source{}, nil, missing
	}
	found := make([]*unstructured.Unstructured, len(all))
	err = o.call(ctx, read, all, func(ctx context.Context, i int, client dynamic.ResourceInterface) (err error) {
		found[i], err = client.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	for i, u := range found {
		if u != nil && u.GetName() == name {
			shown(u, all[i])
			return all[i], u, nil
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		err = missing
	}
	return source{}, nil, err
}

// Get implements resources.Objects.
func (o objects) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	_, u, err := o.find(ctx, name)
	return u, err
}

// selected returns the sources of a list, and options for the agents of their clusters.
func (o objects) selected(ctx context.Context, options metav1.ListOptions) ([]source, metav1.ListOptions, error) {
	passed := metav1.ListOptions{LabelSelector: options.LabelSelector}
	selector, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return nil, passed, apierrors.NewBadRequest(err.Error())
	}
	namespace := o.namespace
	if named, ok := selector.RequiresExactMatch("metadata.namespace"); ok && (namespace == "" || namespace == named) {
		namespace = named
		if selector, err = selector.Transform(func(field, value string) (string, string, error) {
			if field == "metadata.namespace" {
				return "", "", nil
			}
			return field, value, nil
		}); err != nil {
			return nil, passed, apierrors.NewBadRequest(err.Error())
		}
	}
	passed.FieldSelector = selector.String()
	all, err := o.sources(ctx, o.workspace, namespace)
	return all, passed, err
}

// List implements resources.Objects. It fails if one of the clusters does not respond: a list is complete, or an error.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if options.Continue != "" {
		return nil, apierrors.NewResourceExpired("lists of pods have one page")
	}
	all, passed, err := o.selected(ctx, options)
	if err != nil {
		return nil, err
	}
	lists := make([]*unstructured.UnstructuredList, len(all))
	if err := o.call(ctx, read, all, func(ctx context.Context, i int, client dynamic.ResourceInterface) (err error) {
		lists[i], err = client.List(ctx, passed)
		return err
	}); err != nil {
		return nil, err
	}
	merged, names, versions := &unstructured.UnstructuredList{}, map[string]bool{}, map[source]string{}
	merged.SetAPIVersion("v1")
	merged.SetKind("PodList")
	for i, list := range lists {
		versions[all[i]] = list.GetResourceVersion()
		for k := range list.Items {
			u := &list.Items[k]
			shown(u, all[i])
			if name := u.GetNamespace() + "/" + u.GetName(); !names[name] {
				names[name] = true
				merged.Items = append(merged.Items, *u)
			}
		}
	}
	merged.SetResourceVersion(o.versions.add(o.workspace, versions))
	return merged, nil
}
