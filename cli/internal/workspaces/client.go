// Package workspaces reads and creates workspaces through the API of the server, and explains errors of the server: which workspace
// was requested, and which ones exist.
package workspaces

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// Page is how many objects one request lists.
const Page = 500

// Client reaches every workspace of a server as one user.
type Client struct {
	config     *rest.Config
	http       *http.Client
	scheme     *runtime.Scheme
	parameters runtime.ParameterCodec
}

// New returns a client with the credentials of config, whose Host does not matter.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the server has its own fairness between users
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent() // becomes the manager in managed fields
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apisv1alpha2.AddToScheme, corev1alpha1.AddToScheme, migrationv1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{config: config, http: client, scheme: scheme, parameters: runtime.NewParameterCodec(scheme)}, nil
}

// At returns a client of one API in the workspace at l.
func (c *Client) At(l location.Location, group schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.Host, config.APIPath, config.GroupVersion = l.URL(), "/apis", &group
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// Verify returns an error unless the user has access to the workspace at l. It requests the list of API groups.
func (c *Client) Verify(ctx context.Context, l location.Location) error {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	err = r.Get().AbsPath("/apis").Do(ctx).Error()
	if apierrors.IsNotFound(err) && l.IsWorkspace() {
		return c.notFound(ctx, l, err)
	}
	return c.Explain(ctx, l, err)
}

// LogicalCluster returns the object that describes the logical cluster at l.
func (c *Client) LogicalCluster(ctx context.Context, l location.Location) (*corev1alpha1.LogicalCluster, error) {
	r, err := c.At(l, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	lc := &corev1alpha1.LogicalCluster{}
	err = r.Get().Resource("logicalclusters").Name(corev1alpha1.LogicalClusterName).Do(ctx).Into(lc)
	return lc, c.Explain(ctx, l, err)
}

// Canonical returns l with its canonical path. If the path of l starts with the name of a logical cluster, the canonical path comes
// from an annotation of the LogicalCluster.
func (c *Client) Canonical(ctx context.Context, l location.Location) (location.Location, error) {
	if !l.IsWorkspace() || l.IsCanonical() {
		return l, nil
	}
	lc, err := c.LogicalCluster(ctx, l)
	if err != nil {
		return l, err
	}
	if path := lc.Annotations[corev1alpha1.PathAnnotation]; location.ValidPath(path) {
		return l.At(path), nil
	}
	return l, nil
}

// Home returns the home workspace of the user.
func (c *Client) Home(ctx context.Context, l location.Location) (location.Location, error) {
	ws, err := c.get(ctx, l.At(location.Root), "~")
	if err != nil {
		return l, homeError(l, err)
	}
	home, err := location.Parse(ws.Spec.URL)
	if err != nil || !home.IsWorkspace() {
		return l, sentence(nil, "the URL %q of the home workspace has no /clusters/ path", ws.Spec.URL)
	}
	canonical, err := c.Canonical(ctx, l.At(home.Cluster()))
	if err != nil {
		return l.At(home.Cluster()), nil // only the canonical path is unknown
	}
	return canonical, nil
}

// Get returns a child workspace of l. If it does not exist, the error is the server's NotFound.
func (c *Client) Get(ctx context.Context, l location.Location, name string) (*tenancyv1alpha1.Workspace, error) {
	ws, err := c.get(ctx, l, name)
	if !apierrors.IsNotFound(err) {
		err = c.Explain(ctx, l, err)
	}
	return ws, err
}

func (c *Client) get(ctx context.Context, l location.Location, name string) (*tenancyv1alpha1.Workspace, error) {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	ws := &tenancyv1alpha1.Workspace{}
	return ws, r.Get().Resource("workspaces").Name(name).Do(ctx).Into(ws)
}

// Create creates a child workspace of l. It returns the unchanged error of the server.
func (c *Client) Create(ctx context.Context, l location.Location, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error) {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	made := &tenancyv1alpha1.Workspace{}
	return made, r.Post().Resource("workspaces").Body(ws).Do(ctx).Into(made)
}

// Children returns up to limit child workspaces of l, sorted by name, and whether there are more. A limit of 0 returns all.
func (c *Client) Children(ctx context.Context, l location.Location, limit int) ([]tenancyv1alpha1.Workspace, bool, error) {
	children, more, err := c.children(ctx, l, limit)
	if apierrors.IsForbidden(err) {
		return nil, false, sentence(err, "you may not list the workspaces of %s: %s", l, err)
	}
	return children, more, c.Explain(ctx, l, err)
}

func (c *Client) children(ctx context.Context, l location.Location, limit int) ([]tenancyv1alpha1.Workspace, bool, error) {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, false, err
	}
	var children []tenancyv1alpha1.Workspace
	options := metav1.ListOptions{Limit: Page}
	for {
		list := &tenancyv1alpha1.WorkspaceList{}
		if err := r.Get().Resource("workspaces").VersionedParams(&options, c.parameters).Do(ctx).Into(list); err != nil {
			return nil, false, err
		}
		children, options.Continue = append(children, list.Items...), list.Continue
		if limit > 0 && len(children) >= limit {
			return children[:limit], len(children) > limit || list.Continue != "", nil
		}
		if options.Continue == "" {
			return children, false, nil
		}
	}
}

// Types returns the names of the workspace types in l.
func (c *Client) Types(ctx context.Context, l location.Location) ([]string, error) {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	list := &tenancyv1alpha1.WorkspaceTypeList{}
	if err := r.Get().Resource("workspacetypes").VersionedParams(&metav1.ListOptions{Limit: Page},
		c.parameters).Do(ctx).Into(list); err != nil {
		return nil, c.Explain(ctx, l, err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, nil
}
