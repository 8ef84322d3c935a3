// Package apis reads the APIs of a workspace and their providers, creates APIBindings, and accepts or rejects permission claims.
package apis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

const (
	bindings = "apibindings"
	exports  = "apiexports"
)

// Client reaches the bindings and exports of every workspace of a server.
type Client struct{ workspaces *workspaces.Client }

// New returns a client with the credentials of a client for workspaces.
func New(client *workspaces.Client) Client { return Client{client} }

// Bindings returns all bindings of the workspace at l.
func (c Client) Bindings(ctx context.Context, l location.Location) ([]apisv1alpha2.APIBinding, error) {
	list := &apisv1alpha2.APIBindingList{}
	err := c.read(ctx, l, bindings, "", list)
	return list.Items, err
}

// Exports returns all exports of the workspace at l.
func (c Client) Exports(ctx context.Context, l location.Location) ([]apisv1alpha2.APIExport, error) {
	list := &apisv1alpha2.APIExportList{}
	err := c.read(ctx, l, exports, "", list)
	return list.Items, err
}

// Export returns an export of the workspace at l.
func (c Client) Export(ctx context.Context, l location.Location, name string) (*apisv1alpha2.APIExport, error) {
	export := &apisv1alpha2.APIExport{}
	return export, c.read(ctx, l, exports, name, export)
}

// Binding returns a binding of the workspace at l. If it does not exist, the error lists the existing bindings.
func (c Client) Binding(ctx context.Context, l location.Location, name string) (*apisv1alpha2.APIBinding, error) {
	binding := &apisv1alpha2.APIBinding{}
	err := c.read(ctx, l, bindings, name, binding)
	if !isMissing(err, bindings) {
		return binding, err
	}
	others, listing := c.Bindings(ctx, l)
	if listing != nil {
		return nil, fmt.Errorf("%s has no APIBinding %q: %w", l, name, err)
	}
	if len(others) == 0 {
		return nil, fmt.Errorf("%s has no APIBinding %q; it has no APIBindings", l, name)
	}
	return nil, fmt.Errorf("%s has no APIBinding %q; it has %s", l, name, strings.Join(Names(others), ", "))
}

// read gets an object, or lists all objects of a resource if the name is empty.
func (c Client) read(ctx context.Context, l location.Location, resource, name string, into runtime.Object) error {
	r, err := c.workspaces.At(l, apisv1alpha2.SchemeGroupVersion)
	if err != nil {
		return err
	}
	request := r.Get().Resource(resource)
	if name != "" {
		request = request.Name(name)
	}
	return c.explain(ctx, l, resource, request.Do(ctx).Into(into))
}

// explain returns an error that explains the failure of a request to the workspace at l. It returns NotFound errors for objects unchanged.
func (c Client) explain(ctx context.Context, l location.Location, resource string, err error) error {
	if isMissing(err, resource) {
		return err
	}
	return c.workspaces.Explain(ctx, l, err)
}

// isMissing reports whether the workspace exists but the object in it does not.
func isMissing(err error, resource string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Group == apisv1alpha2.SchemeGroupVersion.Group && details.Kind == resource && details.Name != ""
}

// Create creates a binding in the workspace at l. With dryRun, the server validates it without storing it.
func (c Client) Create(ctx context.Context, l location.Location, binding *apisv1alpha2.APIBinding,
	dryRun bool) (*apisv1alpha2.APIBinding, error) {
	r, err := c.workspaces.At(l, apisv1alpha2.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	request := r.Post().Resource(bindings).Body(binding)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	made := &apisv1alpha2.APIBinding{}
	err = request.Do(ctx).Into(made)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("%s already has an APIBinding %q; choose another name with --name, or accept and reject its claims with kubectl "+
			"kcp claims",
			l, binding.Name)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, fmt.Errorf("creating APIBinding %q in %s: %w", binding.Name, l, err)
	}
	return made, c.explain(ctx, l, bindings, err)
}

// Change changes a binding of the workspace at l, and retries on conflicts. It writes nothing if change returns false.
func (c Client) Change(ctx context.Context, l location.Location, name string, change func(*apisv1alpha2.APIBinding) (bool, error)) error {
	r, err := c.workspaces.At(l, apisv1alpha2.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		binding, err := c.Binding(ctx, l, name)
		if err != nil {
			return err
		}
		changed, err := change(binding)
		if err != nil || !changed {
			return err
		}
		err = r.Put().Resource(bindings).Name(name).Body(binding).Do(ctx).Error()
		if err == nil || apierrors.IsConflict(err) {
			return err
		}
		return fmt.Errorf("updating APIBinding %q in %s: %w", name, l, err)
	})
}

// NewBinding returns a binding to an export. An empty path refers to the workspace of the binding.
func NewBinding(name, path, export string) *apisv1alpha2.APIBinding {
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.SetGroupVersionKind(apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"))
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: path, Name: export}
	return binding
}

// ParseExport parses <path>:<name>. A name without a path is an export of the current workspace.
func ParseExport(text string) (path, name string, err error) {
	name = text
	if i := strings.LastIndex(text, ":"); i >= 0 {
		path, name = strings.TrimPrefix(text[:i], ":"), text[i+1:]
		if !location.ValidPath(path) {
			return "", "", fmt.Errorf(
				"invalid APIExport %q: must be the absolute path of a workspace and a name, for example root:org:widgets",
				text,
			)
		}
	}
	if name == "" || strings.ContainsAny(name, "/ ") {
		return "", "", fmt.Errorf("invalid APIExport %q: must be <path>:<name>, for example root:org:widgets", text)
	}
	return path, name, nil
}

// Export returns the export of a binding as <path>:<name>.
func Export(binding *apisv1alpha2.APIBinding) string {
	switch export := binding.Spec.Reference.Export; {
	case export == nil:
		return ""
	case export.Path == "":
		return export.Name
	default:
		return export.Path + ":" + export.Name
	}
}

// Names returns the sorted names of bindings.
func Names(bindings []apisv1alpha2.APIBinding) []string {
	names := make([]string, len(bindings))
	for i := range bindings {
		names[i] = bindings[i].Name
	}
	slices.Sort(names)
	return names
}
