package workspaces

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/location"
)

// named is how many workspaces an error lists.
const named = 10

// explained is an error in words for people, with the cause for errors.As.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

func sentence(cause error, format string, args ...any) error {
	return &explained{fmt.Sprintf(format, args...), cause}
}

// Explain says what the error of a request to the workspace at l means.
func (c *Client) Explain(ctx context.Context, l location.Location, err error) error {
	var unreachable *url.Error
	switch {
	case err == nil:
		return nil
	case isPathNotFound(err) && l.IsWorkspace():
		return c.notFound(ctx, l, err)
	case apierrors.IsNotFound(err):
		return sentence(err, "%s serves no workspaces: it does not have the APIs of kcp (%s)", l.URL(), err)
	case apierrors.IsForbidden(err):
		hint := ""
		if _, below := l.Parent(); !below && !l.IsCanonical() {
			hint = ", or there is no logical cluster of that name; the first part of a path is usually root"
		}
		return sentence(err, "access to workspace %q denied%s: %s", l, hint, err)
	case apierrors.IsUnauthorized(err):
		return sentence(err, "%s does not accept the credentials of the kubeconfig: %s", l.Base(), err)
	case apierrors.IsServiceUnavailable(err):
		return sentence(err, "workspace %q is unavailable: %s", l, err)
	case errors.As(err, &unreachable) && ctx.Err() == nil:
		return sentence(err, "cannot reach %s: %s", l.Base(), unreachable.Err)
	}
	return err
}

// isPathNotFound tells that the path of the request leads nowhere, and not that something is missing where it leads.
func isPathNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Group == tenancyv1alpha1.SchemeGroupVersion.Group && d.Kind == "workspaces" && d.Name != ""
}

// notFound looks for the nearest workspace above l that exists, and tells what is in it.
func (c *Client) notFound(ctx context.Context, l location.Location, cause error) error {
	for above, ok := l.Parent(); ok; above, ok = above.Parent() {
		children, more, err := c.children(ctx, above, named)
		switch {
		case isPathNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return sentence(cause, "workspace %q not found, and you may not see the workspaces of %s", l, above)
		case err != nil:
			return sentence(cause, "workspace %q not found", l)
		}
		return sentence(cause, "workspace %q not found: %s", l, has(above, children, more))
	}
	return sentence(cause, "workspace %q not found", l)
}

// has says which workspaces a workspace has.
func has(l location.Location, children []tenancyv1alpha1.Workspace, more bool) string {
	if len(children) == 0 {
		return fmt.Sprintf("%s has no workspaces", l)
	}
	names := make([]string, len(children))
	for i := range children {
		names[i] = children[i].Name
	}
	text := fmt.Sprintf("%s has the workspaces %s", l, strings.Join(names, ", "))
	switch {
	case more:
		text += " and more"
	case len(names) == 1:
		text = fmt.Sprintf("%s has only the workspace %s", l, names[0])
	}
	return text
}

func homeError(l location.Location, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return sentence(err, "%s keeps no home workspace for you; choose a workspace by its path, for example :root", l.Base())
	case apierrors.IsForbidden(err):
		return sentence(err, "you have no home workspace, and may not get one: %s", err)
	}
	var unreachable *url.Error
	if errors.As(err, &unreachable) {
		return sentence(err, "cannot reach %s: %s", l.Base(), unreachable.Err)
	}
	return err
}

// ExplainCreate says what it means that the workspace called name cannot be made at l.
func (c *Client) ExplainCreate(ctx context.Context, l location.Location, name string, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || isPathNotFound(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) {
		return c.Explain(ctx, l, err)
	}
	return sentence(err, "workspace %q cannot be created in %s: %s", name, l, err)
}
