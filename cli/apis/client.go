// Package apis is about the APIs that a workspace has: who provides each of them, the bindings that bring some of them in, and
// what their providers claim in return.
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
	"github.com/kcplane/kcp/cli/location"
	"github.com/kcplane/kcp/cli/workspaces"
)

const (
	bindings = "apibindings"
	exports  = "apiexports"
)

// Client reaches the bindings and exports of every workspace of a server.
type Client struct{ workspaces *workspaces.Client }

// New returns a client with the credentials of another.
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

// Binding returns a binding of the workspace at l. If there is none of that name, the error says which there are.
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
		return nil, fmt.Errorf("%s has no APIBinding %q, nor any other", l, name)
	}
	return nil, fmt.Errorf("%s has no APIBinding %q; it has %s", l, name, strings.Join(Names(others), ", "))
}

// read gets an object, or lists all of a resource if there is no name.
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

// explain says what the error of a request to the workspace at l means. That an object is missing there is for the caller to
// explain.
func (c Client) explain(ctx context.Context, l location.Location, resource string, err error) error {
	if isMissing(err, resource) {
		return err
	}
	return c.workspaces.Explain(ctx, l, err)
}

// isMissing tells that the workspace was found and the object in it was not.
func isMissing(err error, resource string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Group == apisv1alpha2.SchemeGroupVersion.Group && details.Kind == resource && details.Name != ""
}

// Create makes a binding in the workspace at l, or asks whether it could be made if dryRun is set.
func (c Client) Create(ctx context.Context, l location.Location, binding *apisv1alpha2.APIBinding, dryRun bool) (*apisv1alpha2.APIBinding, error) {
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
		return nil, fmt.Errorf("%s has an APIBinding %q already; choose another name with --name, or see kubectl kcp claims --help to answer claims",
			l, binding.Name)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, fmt.Errorf("APIBinding %q cannot be created in %s: %w", binding.Name, l, err)
	}
	return made, c.explain(ctx, l, bindings, err)
}

// Change changes a binding of the workspace at l, again if somebody else does so at the same time. It writes nothing if change
// tells that there is nothing to write.
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
		return fmt.Errorf("APIBinding %q of %s cannot be changed: %w", name, l, err)
	})
}

// NewBinding returns a binding to an export of the workspace with a path; without one, of the workspace of the binding.
func NewBinding(name, path, export string) *apisv1alpha2.APIBinding {
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.SetGroupVersionKind(apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"))
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: path, Name: export}
	return binding
}

// ParseExport takes <path>:<name> apart. A name alone is an export of the current workspace.
func ParseExport(text string) (path, name string, err error) {
	name = text
	if i := strings.LastIndex(text, ":"); i >= 0 {
		path, name = strings.TrimPrefix(text[:i], ":"), text[i+1:]
		if !location.ValidPath(path) {
			return "", "", fmt.Errorf("%q is no export: want the path of a workspace from the root and a name, for example root:org:widgets", text)
		}
	}
	if name == "" || strings.ContainsAny(name, "/ ") {
		return "", "", fmt.Errorf("%q is no export: want <path>:<name>, for example root:org:widgets", text)
	}
	return path, name, nil
}

// Export names what a binding binds, as <path>:<name>.
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

// Names returns the names of bindings, in order.
func Names(bindings []apisv1alpha2.APIBinding) []string {
	names := make([]string, len(bindings))
	for i := range bindings {
		names[i] = bindings[i].Name
	}
	slices.Sort(names)
	return names
}
