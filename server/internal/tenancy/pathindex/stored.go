package pathindex

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// eventPoll and eventTimeout define how often, and for how long, a request waits for the event of a stored
	// object.
	eventPoll    = 2 * time.Millisecond
	eventTimeout = 5 * time.Second
	// storedTimeout limits a read from storage.
	storedTimeout = 10 * time.Second
)

// Reader reads an object of the cluster of ctx as it is stored.
type Reader interface {
	Get(ctx context.Context, name string, out runtime.Object) error
}

// Stored finds objects that another server stored a moment ago, and that this server does not know yet.
//
// Invariants:
//   - Storage only decides whether Find waits for an event or fails. The place comes from the informers in any case.
//   - A path whose place and LogicalCluster are in the informers needs no read. For another path, Find reads storage only within the
//     limits, and once for all requests that look up the same path at the same time.
//   - Requests of the server itself never read storage.
//   - A path that is stored but does not resolve in time is an error with a retry delay, and not a path that does not exist.
type Stored struct {
	*Index
	// Clusters and Workspaces read both kinds from storage.
	Clusters, Workspaces Reader

	// Shard is the name of this shard if the installation has others. Find returns an error for a workspace that another shard holds.
	Shard string

	own     func(*http.Request) bool
	limits  *lookupLimits
	looking singleflight.Group
}

// NewStored returns the index with storage as a fallback. own recognizes requests of the server itself, which concern objects that it
// knows.
func NewStored(index *Index, clusters, workspaces Reader, own func(*http.Request) bool) *Stored {
	return &Stored{Index: index, Clusters: clusters, Workspaces: workspaces, own: own, limits: newLookupLimits()}
}

// Find resolves a path as Lookup does. It looks up unknown paths in storage, and waits for the event of an object that is stored: a
// request can arrive at one server right after another one created its workspace. The error is for clients.
func (s *Stored) Find(r *http.Request, path string) (Place, bool, error) {
	place, ok, err := s.find(r, path)
	if s.Shard == "" || err != nil || place.URL != "" || !strings.Contains(path, ":") {
		return place, ok, err
	}
	return s.here(path, place, ok)
}

// here returns the place of a path if this shard holds it, and an error if another shard does. place and ok are what this shard's own
// workspaces say.
func (s *Stored) here(path string, place Place, ok bool) (Place, bool, error) {
	own := ok
	if !ok {
		if place, ok = s.Anywhere(path); !ok || place.URL != "" {
			return Place{}, false, nil
		}
	}
	if place.Cluster == "" || place.Shard == s.Shard || (own && place.Shard == "") {
		return place, true, nil
	}
	return Place{}, false, apierrors.NewTooManyRequests(
		fmt.Sprintf("workspace %s is on another shard: send the request to the URL of the installation", path), 1)
}

func (s *Stored) find(r *http.Request, path string) (Place, bool, error) {
	if place, ok := s.known(path); ok {
		return place, true, nil
	}
	ctx := r.Context()
	switch isPath := strings.Contains(path, ":"); {
	case s.own(r):
		place, ok := s.Lookup(path)
		return place, ok, nil
	case s.limits.allow(r):
	case !isPath:
		return Place{}, false, nil // authorization decides, because the cluster may not exist
	default:
		err := apierrors.NewServiceUnavailable(fmt.Sprintf("%s is not known to this server, and you requested too many unknown "+
			"workspaces: retry in one second", path))
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return Place{}, false, err
	}
	stored, err, _ := s.looking.Do(path, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storedTimeout) // other requests may wait for the result
		defer cancel()
		return s.isStored(ctx, path)
	})
	if err != nil {
		return Place{}, false, err
	}
	if !stored.(bool) {
		place, ok := s.Lookup(path)
		return place, ok, nil
	}
	err = wait.PollUntilContextTimeout(ctx, eventPoll, eventTimeout, true, func(context.Context) (bool, error) {
		_, ok := s.known(path)
		return ok, nil
	})
	place, ok := s.Lookup(path)
	if err != nil && !ok {
		err := apierrors.NewServiceUnavailable(fmt.Sprintf("%s was created a moment ago and is not known to this server yet: retry "+
			"the request", path))
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return Place{}, false, err
	}
	return place, ok, nil
}

// known is Lookup, but it also requires that the logical cluster at the path is known.
func (s *Stored) known(path string) (Place, bool) {
	place, ok := s.Lookup(path)
	if !ok || place.Cluster == "" || place.Cluster == logicalcluster.Name(path) {
		return place, ok
	}
	return place, s.clusters.Has(place.Cluster, "", corev1alpha1.LogicalClusterName)
}

// isStored reports whether a path resolves to a place according to storage.
func (s *Stored) isStored(ctx context.Context, path string) (bool, error) {
	parts := strings.Split(canonical(path), ":")
	cluster := logicalcluster.Name(parts[0])
	for i, name := range parts[1:] {
		if found, err := s.clusterStored(ctx, cluster); !found || err != nil {
			return false, err
		}
		if place, ok := s.child(cluster, name); ok && place.Cluster != "" {
			cluster = place.Cluster
			continue
		}
		ws := &tenancyv1alpha1.Workspace{}
		err := s.Workspaces.Get(logicalcluster.WithName(ctx, cluster), name, ws)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if ws.Status.Phase == "" || ws.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling {
			return false, nil
		}
		if ws.Spec.Mount != nil {
			return ws.Spec.URL != "" && i == len(parts)-2, nil
		}
		if cluster = logicalcluster.Name(ws.Spec.Cluster); cluster == "" {
			return false, nil
		}
	}
	return s.clusterStored(ctx, cluster)
}

func (s *Stored) clusterStored(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	if s.clusters.Has(cluster, "", corev1alpha1.LogicalClusterName) {
		return true, nil
	}
	err := s.Clusters.Get(logicalcluster.WithName(ctx, cluster), corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewInternalError(fmt.Errorf("looking up logical cluster %s: %w", cluster, err))
	}
	return err == nil, err
}
