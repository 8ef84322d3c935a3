package home

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Call is the peer call by which a shard gets the home of a user from the root shard, which creates it if it does not exist.
const Call = "homes.get"

// Each shard may create this many homes a second here, and a burst. Front proxies send users without a home to the root shard.
const (
	creationsPerSecond = 5
	creationBurst      = 100
)

// creations limits the homes that each shard creates: a shard can name any user.
type creations struct {
	mu      sync.Mutex
	budgets map[string]*rate.Limiter // by the name of the shard: the list of shards bounds it
}

type budgetKey struct{}

// charge returns a context in which the homes that are created count for a shard.
func (c *creations) charge(ctx context.Context, shard string) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	budget := c.budgets[shard]
	if budget == nil {
		if c.budgets == nil {
			c.budgets = map[string]*rate.Limiter{}
		}
		budget = rate.NewLimiter(creationsPerSecond, creationBurst)
		c.budgets[shard] = budget
	}
	return context.WithValue(ctx, budgetKey{}, budget)
}

// permitted returns an error if the shard of a context creates too many homes.
func permitted(ctx context.Context) error {
	if budget, ok := ctx.Value(budgetKey{}).(*rate.Limiter); ok && !budget.Allow() {
		return apierrors.NewTooManyRequests("too many users get their first home workspace through this shard: retry the request", 1)
	}
	return nil
}

// Serve is the handler of Call. The shard that calls has authenticated the user.
func (h *Homes) Serve(ctx context.Context, caller peers.Identity, who authenticationv1.UserInfo) (*tenancyv1alpha1.Workspace, error) {
	ctx = h.creations.charge(ctx, caller.Name)
	extra := map[string][]string{}
	for key, values := range who.Extra {
		extra[key] = values
	}
	return h.home(logicalcluster.WithName(ctx, logicalcluster.Root), &user.DefaultInfo{
		Name: who.Username, UID: who.UID, Groups: authorization.Unguarded(who.Groups), Extra: extra,
	})
}

// AskRoot gets the home of a user from the root shard.
func AskRoot(clients *peers.Clients) func(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
	return func(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
		in := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
		for key, values := range who.GetExtra() {
			if in.Extra == nil {
				in.Extra = map[string]authenticationv1.ExtraValue{}
			}
			in.Extra[key] = values
		}
		limited, cancel := context.WithTimeout(ctx, 2*scheduling.CreationBudget)
		defer cancel()
		home, err := peers.Call[authenticationv1.UserInfo, *tenancyv1alpha1.Workspace](limited, clients, peers.Root, Call, in)
		if peers.IsUnreachable(err) {
			return nil, unavailable("the root shard, which knows the homes of users, does not respond: retry later")
		}
		return home, err
	}
}

// held returns a home that this shard holds, and otherwise the answer of the root shard, also for a home that moves or has moved away.
func (h *Homes) held(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
	name := pathindex.HomeCluster(who.GetName())
	lc := &corev1alpha1.LogicalCluster{}
	err := h.Clusters.Get(logicalcluster.WithName(ctx, name), corev1alpha1.LogicalClusterName, lc)
	switch {
	case apierrors.IsNotFound(err) || storage.IsFenced(err):
		return h.Ask(ctx, who)
	case err != nil:
		return nil, err
	}
	return h.show(name, lc), readiness(lc, lc.Status.Phase, lc.Status.Initializers)
}

// recorded returns the home of a user according to its record, and creates both if there is no record. Homes from a time when there was one
// shard have none, and stay on the root shard.
func (h *Homes) recorded(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
	ws, err := scheduling.Home(ctx, h.Records, who.GetName())
	if ws == nil && err == nil {
		if older, err := h.older(ctx, who); older || err != nil {
			return h.single(ctx, who)
		}
		if err = h.mayCreate(ctx, who); err == nil {
			err = permitted(ctx)
		}
	}
	if err == nil && (ws == nil || ws.Spec.Cluster == "") {
		ws, err = h.Scheduler.CreateHome(ctx, h.Records, who.GetName(), ownerOf(who))
	}
	if none := (scheduling.UnschedulableError{}); errors.As(err, &none) {
		err = unavailable("your home workspace cannot be created now: " + none.Reason)
	}
	if err != nil {
		return nil, err
	}
	return showRecord(ws), h.readinessOf(ws)
}

// older reports whether a user has a home without a record. One that has moved away had a record.
func (h *Homes) older(ctx context.Context, who user.Info) (bool, error) {
	inside := logicalcluster.WithName(ctx, pathindex.HomeCluster(who.GetName()))
	err := h.Clusters.Get(inside, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{})
	if apierrors.IsNotFound(err) || storage.IsFenced(err) {
		return false, nil
	}
	return err == nil, err
}

// readinessOf returns an error for a home that is not ready, with the shard that it waits for.
func (h *Homes) readinessOf(ws *tenancyv1alpha1.Workspace) error {
	shard := h.Scheduler.ShardOf(ws)
	switch {
	case ws.DeletionTimestamp != nil:
	case ws.Spec.Cluster == "":
		return unavailable(fmt.Sprintf("shard %q, which creates your home workspace, does not respond: retry later", shard))
	case ws.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable:
		return unavailable(fmt.Sprintf("shard %q has lost your home workspace: an administrator must restore it", shard))
	}
	return readiness(ws, ws.Status.Phase, ws.Status.Initializers)
}

func unavailable(sentence string) error {
	err := apierrors.NewServiceUnavailable(sentence)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// showRecord returns the home of a record as its user sees it.
func showRecord(record *tenancyv1alpha1.Workspace) *tenancyv1alpha1.Workspace {
	ws := record.DeepCopy()
	ws.TypeMeta = metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: "Workspace"}
	ws.ObjectMeta = metav1.ObjectMeta{
		Name: corev1alpha1.LogicalClusterName, CreationTimestamp: record.CreationTimestamp,
		Labels: map[string]string{corev1alpha1.PhaseLabel: string(record.Status.Phase)},
		Annotations: map[string]string{logicalcluster.AnnotationKey: string(logicalcluster.Root),
			corev1alpha1.PathAnnotation: record.Annotations[corev1alpha1.PathAnnotation]},
	}
	sinceCreation(ws)
	return ws
}
