package workspaces

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// pause is the delay before a watch is restarted.
const pause = 200 * time.Millisecond

// WaitReady waits until the workspace ws in l is ready. It returns an error that explains the state after the timeout. It calls progress
// with every state in between.
func (c *Client) WaitReady(ctx context.Context, l location.Location, ws *tenancyv1alpha1.Workspace, timeout time.Duration,
	progress func(*tenancyv1alpha1.Workspace)) (*tenancyv1alpha1.Workspace, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid := ws.UID
	for {
		switch {
		case ws.UID != uid:
			return ws, fmt.Errorf("workspace %q in %s was deleted and created again while waiting for it to be ready", ws.Name, l)
		case !ws.DeletionTimestamp.IsZero():
			return ws, fmt.Errorf("workspace %q in %s is being deleted", ws.Name, l)
		case ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady:
			return ws, nil
		}
		progress(ws)
		next, err := c.next(limited, l, ws)
		switch {
		case ctx.Err() != nil:
			return ws, sentence(ctx.Err(), "interrupted; the server continues to initialize workspace %q in %s", ws.Name, l)
		case limited.Err() != nil:
			return ws, fmt.Errorf("workspace %q in %s is not ready after %s: %s", ws.Name, l, timeout, Describe(ws))
		case apierrors.IsNotFound(err):
			return ws, fmt.Errorf("workspace %q in %s was deleted while waiting for it to be ready", ws.Name, l)
		case err != nil:
			return ws, fmt.Errorf("waiting for workspace %q in %s to be ready: %w", ws.Name, l, err)
		}
		ws = next
	}
}

// next returns the next state of ws. It watches from the resource version of ws. If the watch ends, it lists and watches again.
func (c *Client) next(ctx context.Context, l location.Location, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error) {
	r, err := c.At(l, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	only := fields.OneTermEqualSelector("metadata.name", ws.Name).String()
	for version := ws.ResourceVersion; ; {
		w, err := r.Get().Resource("workspaces").VersionedParams(
			&metav1.ListOptions{Watch: true, ResourceVersion: version, FieldSelector: only}, c.parameters).Watch(ctx)
		if err == nil {
			var next *tenancyv1alpha1.Workspace
			if next, err = first(ctx, w, ws.Name); next != nil {
				return next, nil
			}
		}
		if err != nil && !lost(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		list := &tenancyv1alpha1.WorkspaceList{}
		err = r.Get().Resource("workspaces").VersionedParams(&metav1.ListOptions{Limit: Page, FieldSelector: only}, c.parameters).
			Do(ctx).Into(list)
		switch {
		case err != nil && lost(err):
		case err != nil:
			return nil, err
		case len(list.Items) == 0:
			return nil, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), ws.Name)
		case list.Items[0].ResourceVersion != ws.ResourceVersion:
			return &list.Items[0], nil
		default:
			version = list.ResourceVersion
		}
	}
}

// first returns the first state that a watch delivers, or nil if the watch ends without one.
func first(ctx context.Context, w watch.Interface, name string) (*tenancyv1alpha1.Workspace, error) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return nil, nil
			}
			ws, isWorkspace := event.Object.(*tenancyv1alpha1.Workspace)
			switch {
			case event.Type == watch.Error:
				return nil, apierrors.FromObject(event.Object)
			case !isWorkspace || ws.Name != name:
			case event.Type == watch.Deleted:
				return nil, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), name)
			case event.Type != watch.Bookmark:
				return ws, nil
			}
		}
	}
}

// lost reports whether a failed watch can be restarted.
func lost(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// Describe describes the phase of a workspace and what it waits for.
func Describe(ws *tenancyv1alpha1.Workspace) string {
	phase := string(ws.Status.Phase)
	if phase == "" {
		phase = string(corev1alpha1.LogicalClusterPhaseScheduling)
	}
	text := "phase is " + phase
	if left := ws.Status.Initializers; len(left) > 0 {
		names := make([]string, len(left))
		for i := range left {
			names[i] = string(left[i])
		}
		text += ", waiting for " + strings.Join(names, ", ")
	}
	for _, condition := range ws.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Message != "" && condition.Reason != tenancyv1alpha1.ReasonInitializerExists {
			text += fmt.Sprintf("; %s: %s", condition.Reason, condition.Message)
		}
	}
	return text
}
