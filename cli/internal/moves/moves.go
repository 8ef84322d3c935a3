// Package moves lets the logical clusters of workspaces move to another shard, one after the other.
package moves

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// Move is a workspace that moves, as printed in JSON and YAML.
type Move struct {
	Path    string `json:"path"`
	Cluster string `json:"cluster"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Migration is the name of the LogicalClusterMigration; empty with --dry-run, and for a workspace that is on the shard already.
	Migration string                                         `json:"migration,omitempty"`
	Phase     migrationv1alpha1.LogicalClusterMigrationPhase `json:"phase,omitempty"`
	Entries   int64                                          `json:"entriesCopied,omitempty"`
	Bytes     int64                                          `json:"bytesCopied,omitempty"`
}

// Reader reads workspaces.
type Reader interface {
	Children(ctx context.Context, l location.Location, limit int) ([]tenancyv1alpha1.Workspace, bool, error)
}

// Errors for a workspace without a logical cluster.
var (
	ErrMount = errors.New("it is a mount: it has no logical cluster, and moves with its parent workspace. Move the parent, or the workspace " +
		"that it mounts")
	ErrUnscheduled = errors.New("it has no logical cluster yet. Move it when it is scheduled")
)

// Plan returns the moves of a workspace at l and, if below is set, of everything below it, the leaves first. What has no logical cluster
// there is left out.
func Plan(ctx context.Context, r Reader, l location.Location, ws *tenancyv1alpha1.Workspace, to string, below bool) ([]Move, error) {
	switch {
	case ws.Spec.Mount != nil:
		return nil, fmt.Errorf("workspace %s: %w", l.Cluster(), ErrMount)
	case ws.Spec.Cluster == "":
		return nil, fmt.Errorf("workspace %s: %w", l.Cluster(), ErrUnscheduled)
	}
	var all []Move
	if below {
		children, _, err := r.Children(ctx, l, 0)
		if err != nil {
			return nil, err
		}
		for i := range children {
			moves, err := Plan(ctx, r, l.Child(children[i].Name), &children[i], to, true)
			if err != nil && !errors.Is(err, ErrMount) && !errors.Is(err, ErrUnscheduled) {
				return nil, err
			}
			all = append(all, moves...)
		}
	}
	return append(all, Move{Path: l.Cluster(), Cluster: ws.Spec.Cluster, From: ws.Annotations[tenancyv1alpha1.ShardAnnotation], To: to}), nil
}

// Client reads and writes LogicalClusterMigrations in root.
type Client struct{ client rest.Interface }

const resource = "logicalclustermigrations"

// New returns a client of the API in root.
func New(client rest.Interface) *Client { return &Client{client} }

// Begin creates the migration of a move.
func (c *Client) Begin(ctx context.Context, m Move) (*migrationv1alpha1.LogicalClusterMigration, error) {
	obj := &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: m.Cluster + "-"},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: m.Cluster, DestinationShard: m.To},
	}
	obj.SetGroupVersionKind(migrationv1alpha1.SchemeGroupVersion.WithKind("LogicalClusterMigration"))
	created := &migrationv1alpha1.LogicalClusterMigration{}
	err := c.client.Post().Resource(resource).Body(obj).Do(ctx).Into(created)
	return created, explain(err)
}

func explain(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the server does not serve LogicalClusterMigrations in root; workspaces move only in an installation of several "+
			"shards: %w", err)
	}
	return err
}

// CheckShard returns an error if there is no shard with a name. client is that of the API of shards in root. Without permission to read
// shards, the migration itself says so.
func CheckShard(ctx context.Context, client rest.Interface, name string) error {
	err := client.Get().Resource("shards").Name(name).Do(ctx).Error()
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no shard %q; list the shards with kubectl get shards in the workspace root", name)
	}
	return err
}

// interval is the time between two reads of a migration.
const interval = 300 * time.Millisecond

// Await reads a migration until it has ended. It returns an error if the workspace has not moved.
func (c *Client) Await(ctx context.Context, name string,
	progress func(*migrationv1alpha1.LogicalClusterMigration)) (*migrationv1alpha1.LogicalClusterMigration, error) {
	var last *migrationv1alpha1.LogicalClusterMigration
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		obj := &migrationv1alpha1.LogicalClusterMigration{}
		err := c.client.Get().Resource(resource).Name(name).Do(ctx).Into(obj)
		switch {
		case apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err):
			return false, nil
		case apierrors.IsNotFound(err):
			return false, fmt.Errorf("migration %q was canceled: %w", name, err)
		case err != nil:
			return false, err
		}
		last = obj
		progress(obj)
		return obj.Status.Phase.IsFinal(), nil
	})
	if err == nil && last.Status.Phase == migrationv1alpha1.PhaseFailed {
		err = fmt.Errorf("migration %q failed: %s", name, Message(last))
	}
	return last, err
}

// Message returns why a migration waits or has failed; empty if it does neither.
func Message(m *migrationv1alpha1.LogicalClusterMigration) string {
	for _, condition := range m.Status.Conditions {
		if condition.Type == migrationv1alpha1.Completed && condition.Status == metav1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

// Cancel deletes the migrations of a logical cluster that run, and returns their names.
func (c *Client) Cancel(ctx context.Context, cluster string) ([]string, error) {
	list := &migrationv1alpha1.LogicalClusterMigrationList{}
	if err := c.client.Get().Resource(resource).Do(ctx).Into(list); err != nil {
		return nil, explain(err)
	}
	var names []string
	for _, m := range list.Items {
		if m.Spec.LogicalCluster != cluster || m.Status.Phase.IsFinal() {
			continue
		}
		if err := c.client.Delete().Resource(resource).Name(m.Name).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
			return names, err
		}
		names = append(names, m.Name)
	}
	return names, nil
}
