package lookup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// CallExists is the name of the peer call by which the shard that holds a logical cluster says whether an object exists there.
const CallExists = "objects.exists"

// Question is whether an object exists.
type Question struct {
	Cluster  logicalcluster.Name `json:"cluster"`
	Group    string              `json:"group"`
	Resource string              `json:"resource"`
	Name     string              `json:"name"`
}

// Answer says whether an object exists.
type Answer struct {
	Exists bool `json:"exists"`
}

// Kind is a kind of objects about which other shards may ask. Shards offer all objects of these kinds to each other anyway.
type Kind struct {
	Resource schema.GroupResource
	Stored   pathindex.Reader
	New      func() runtime.Object
}

// Answers answers questions about the objects of this shard.
type Answers struct {
	kinds map[schema.GroupResource]Kind
	// holds reports whether this shard holds a logical cluster, according to its storage if its memory does not have it.
	holds func(ctx context.Context, caller peers.Identity, cluster logicalcluster.Name) (bool, error)
}

// NewAnswers returns the answers of a shard about kinds.
func NewAnswers(holds func(ctx context.Context, caller peers.Identity, cluster logicalcluster.Name) (bool, error), kinds ...Kind) *Answers {
	a := &Answers{kinds: map[schema.GroupResource]Kind{}, holds: holds}
	for _, k := range kinds {
		a.kinds[k.Resource] = k
	}
	return a
}

// Exists answers CallExists from storage: another server of this shard may have created the object a moment ago.
func (a *Answers) Exists(ctx context.Context, caller peers.Identity, q Question) (Answer, error) {
	kind, ok := a.kinds[schema.GroupResource{Group: q.Group, Resource: q.Resource}]
	if !ok || q.Name == "" {
		return Answer{}, apierrors.NewBadRequest(fmt.Sprintf("other shards may not ask for %q of %q", q.Resource, q.Group))
	}
	held, err := a.holds(ctx, caller, q.Cluster)
	if err != nil {
		return Answer{}, err
	}
	if !held {
		return Answer{}, apierrors.NewBadRequest(fmt.Sprintf("this shard does not hold the logical cluster %q", q.Cluster))
	}
	err = kind.Stored.Get(logicalcluster.WithName(ctx, q.Cluster), q.Name, kind.New())
	if apierrors.IsNotFound(err) {
		return Answer{}, nil
	}
	return Answer{Exists: err == nil}, err
}
