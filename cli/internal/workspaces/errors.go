package workspaces

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// named is the maximum number of workspaces that an error lists.
const named = 10

// explained is an error with a text for people, and the cause for errors.As.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

func sentence(cause error, format string, args ...any) error {
	return &explained{fmt.Sprintf(format, args...), cause}
}

// Explain returns an error that explains the failure of a request to the workspace at l.
func (c *Client) Explain(ctx context.Context, l location.Location, err error) error {
	var unreachable *url.Error
	switch {
	case err == nil:
		return nil
	case isPathNotFound(err) && l.IsWorkspace():
		return c.notFound(ctx, l, err)
	case apierrors.IsNotFound(err):
		return sentence(err, "%s is not a kcp server: it does not serve the APIs of kcp (%s)", l.URL(), err)
	case apierrors.IsForbidden(err):
		hint := ""
		if _, below := l.Parent(); !below && !l.IsCanonical() {
			hint = ", or there is no logical cluster with that name; absolute paths usually start with root"
		}
		return sentence(err, "access to workspace %q denied%s: %s", l, hint, err)
	case apierrors.IsUnauthorized(err):
		return sentence(err, "%s rejected the credentials in the kubeconfig: %s", l.Base(), err)
	case apierrors.IsServiceUnavailable(err):
		return sentence(err, "workspace %q is unavailable: %s", l, err)
	case errors.As(err, &unreachable) && ctx.Err() == nil:
		return sentence(err, "cannot reach %s: %s", l.Base(), unreachable.Err)
	}
	return err
}

// isPathNotFound reports whether the workspace of the request does not exist, as opposed to an object in it.
func isPathNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Group == tenancyv1alpha1.SchemeGroupVersion.Group && d.Kind == "workspaces" && d.Name != ""
}

// notFound returns an error that lists the children of the nearest existing ancestor of l.
func (c *Client) notFound(ctx context.Context, l location.Location, cause error) error {
	for above, ok := l.Parent(); ok; above, ok = above.Parent() {
		children, more, err := c.children(ctx, above, named)
		switch {
		case isPathNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return sentence(cause, "workspace %q not found, and you may not list the workspaces of %s", l, above)
		case err != nil:
			return sentence(cause, "workspace %q not found", l)
		}
		return sentence(cause, "workspace %q not found: %s", l, has(above, children, more))
	}
	return sentence(cause, "workspace %q not found", l)
}

// has describes which children a workspace has.
func has(l location.Location, children []tenancyv1alpha1.Workspace, more bool) string {
	if len(children) == 0 {
		return fmt.Sprintf("%s has no workspaces", l)
	}
	names := make([]string, len(children))
	for i := range children {
		names[i] = children[i].Name
	}
	text := fmt.Sprintf("the workspaces in %s are %s", l, strings.Join(names, ", "))
	switch {
	case more:
		text += " and more"
	case len(names) == 1:
		text = fmt.Sprintf("the only workspace in %s is %s", l, names[0])
	}
	return text
}

func homeError(l location.Location, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return sentence(err, "%s has no home workspace for you; pass the path of a workspace, for example :root", l.Base())
	case apierrors.IsForbidden(err):
		return sentence(err, "you have no home workspace, and creating one is forbidden: %s", err)
	}
	var unreachable *url.Error
	if errors.As(err, &unreachable) {
		return sentence(err, "cannot reach %s: %s", l.Base(), unreachable.Err)
	}
	return err
}

// ExplainCreate returns an error that explains why the workspace with that name cannot be created in l.
func (c *Client) ExplainCreate(ctx context.Context, l location.Location, name string, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || isPathNotFound(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) {
		return c.Explain(ctx, l, err)
	}
	return sentence(err, "creating workspace %q in %s: %s", name, l, err)
}
