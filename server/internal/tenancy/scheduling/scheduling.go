// Package scheduling creates the logical cluster of a workspace: it chooses the shard, the name and the first state.
// If possible, it does so within the request that creates the Workspace.
package scheduling

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Clusters stores LogicalClusters.
type Clusters interface {
	// CreateAsRead stores an object that equals what reading it returns.
	CreateAsRead(ctx context.Context, name string, obj runtime.Object) error
}

// Scheduler chooses shards for workspaces.
type Scheduler struct {
	Clusters Clusters
	// LogicalClusters and Shards are the existing objects.
	LogicalClusters informers.Lister[*corev1alpha1.LogicalCluster]
	Shards          informers.Lister[*corev1alpha1.Shard]
	Tree            *pathindex.Index
	Types           *workspacetypes.Types
	// ShardName is the name of this shard, ExternalURL its URL for users.
	ShardName, ExternalURL string
	// Placement is the rule for choosing among the shards that accept a workspace; empty means Locality.
	Placement Placement
	// Answers reports whether another shard responds, Remote creates logical clusters there, and Stored stores Workspaces. They are nil if
	// this is the only shard.
	Answers func(shard string) bool
	Remote  Remote
	Stored  Revisions
	// MakeRoom lets a home of a Workspace be created on this shard from which an earlier home of the same user may have moved away. It is nil
	// if this is the only shard.
	MakeRoom func(ctx context.Context, home logicalcluster.Name, owner types.UID) error

	clusterArrivals, workspaceArrivals *arrivals
	// seen waits until this server sees what it has acknowledged of the Workspaces in a cluster.
	seen func(context.Context, logicalcluster.Name)
}

// Follow makes requests wait until set has the objects that they created.
func (s *Scheduler) Follow(set *informers.Set) {
	s.clusterArrivals, s.workspaceArrivals = newArrivals(set.LogicalClusters.Informer), newArrivals(set.Workspaces.Informer)
	s.seen = set.Workspaces.Current
}

// UnschedulableError explains why no shard accepts a workspace.
type UnschedulableError struct{ Reason string }

func (e UnschedulableError) Error() string { return e.Reason }

// Shard returns one of the shards that accept a workspace, or an UnschedulableError.
func (s *Scheduler) Shard(ws *tenancyv1alpha1.Workspace) (string, error) {
	selector := labels.Everything()
	if ws.Spec.Location != nil && ws.Spec.Location.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(ws.Spec.Location.Selector); err != nil {
			return "", UnschedulableError{"spec.location.selector is invalid: " + err.Error()}
		}
	}
	all, err := s.Shards.List(logicalcluster.Root)
	if err != nil {
		return "", err
	}
	return choice{
		placement: s.Placement, selector: selector, own: s.ShardName, organization: isTop(logicalcluster.Of(ws)),
		answers: s.answers, random: mathrand.IntN,
	}.choose(all)
}

// isTop reports whether the workspaces of a cluster are distributed over the shards: organizations and homes.
func isTop(parent logicalcluster.Name) bool {
	return parent == logicalcluster.Root || parent == logicalcluster.Homes
}

// answers reports whether another shard responds. Without sharding, no other shard does.
func (s *Scheduler) answers(shard string) bool { return s.Answers != nil && s.Answers(shard) }

// NewName returns the name of a new logical cluster: 16 random characters of base 36.
func NewName() logicalcluster.Name {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	sum := sha256.Sum224(random)
	return logicalcluster.Name(base36(sum[:])[:newNameLength])
}

const newNameLength = 16

// IsNewName reports whether NewName can have returned a name. NewName never returns names of homes or of system
// clusters.
func IsNewName(name logicalcluster.Name) bool {
	return len(name) == newNameLength && strings.Trim(string(name), "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// NameFor returns a name for the logical cluster of a workspace. That of a home is the name of its Workspace.
func NameFor(ws *tenancyv1alpha1.Workspace) logicalcluster.Name {
	if logicalcluster.Of(ws) == logicalcluster.Homes {
		return logicalcluster.Name(ws.Name)
	}
	return NewName()
}

// IsNameFor reports whether NameFor can have returned a name.
func IsNameFor(parent logicalcluster.Name, workspace string, name logicalcluster.Name) bool {
	if parent == logicalcluster.Homes {
		return name != "" && string(name) == workspace
	}
	return IsNewName(name)
}

// base36 encodes a number in base 36, padded to the length of the largest number with the same number of bytes.
func base36(number []byte) string {
	text := new(big.Int).SetBytes(number).Text(36)
	return strings.Repeat("0", max(0, 44-len(text))) + text
}

// ShardHash returns the hash of a shard's name in ShardHashAnnotation.
func ShardHash(shard string) string {
	sum := sha256.Sum224([]byte(shard))
	return base36(sum[:])[:8]
}

// LogicalCluster returns the LogicalCluster of a workspace in its first stored state. The built-in steps are not in it,
// because the first request that enters the cluster performs them. Another shard creates it from a Creation of package
// shards/workspaces, which has no other fields.
func (s *Scheduler) LogicalCluster(ws *tenancyv1alpha1.Workspace, name logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	parent := logicalcluster.Of(ws)
	lc := s.fresh(s.ShardOf(ws), name, s.PathOf(ws))
	lc.Spec = corev1alpha1.LogicalClusterSpec{
		Owner: &corev1alpha1.LogicalClusterOwner{
			APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Resource: "workspaces", Name: ws.Name, Cluster: string(parent), UID: ws.UID,
		},
		CreatedBy: Owner(ws),
	}
	if groups := ws.Annotations[corev1alpha1.RequiredGroupsAnnotation]; groups != "" {
		lc.Annotations[corev1alpha1.RequiredGroupsAnnotation] = groups
	}
	if epoch := ws.Annotations[tenancyv1alpha1.EpochAnnotation]; epoch != "" {
		lc.Annotations[tenancyv1alpha1.EpochAnnotation] = epoch
	}
	if ws.Spec.Type != nil {
		if err := s.settleType(lc, parent, *ws.Spec.Type); err != nil {
			return nil, err
		}
	}
	Begin(lc)
	if parent == logicalcluster.Homes {
		lc.CreationTimestamp = ws.CreationTimestamp // users see one home, by the one or the other
	}
	return lc, nil
}

// PathOf returns the path of a workspace.
func (s *Scheduler) PathOf(ws *tenancyv1alpha1.Workspace) string {
	parent := logicalcluster.Of(ws)
	if owner := Owner(ws); parent == logicalcluster.Homes && owner != nil {
		return pathindex.HomePath(owner.Username)
	}
	return s.Tree.Path(parent) + ":" + ws.Name
}

// WithoutWorkspace returns the LogicalCluster of a workspace without a Workspace object, in its first stored state.
func (s *Scheduler) WithoutWorkspace(of tenancyv1alpha1.WorkspaceTypeReference, name logicalcluster.Name,
	path string) (*corev1alpha1.LogicalCluster, error) {
	lc := s.fresh(s.ShardName, name, path)
	if err := s.settleType(lc, logicalcluster.Root, of); err != nil {
		return nil, err
	}
	Begin(lc)
	return lc, nil
}

// fresh returns a LogicalCluster with only its location.
func (s *Scheduler) fresh(shard string, name logicalcluster.Name, path string) *corev1alpha1.LogicalCluster {
	return Fresh(shard, s.externalURL(shard), name, path)
}

// Fresh returns a LogicalCluster with only its location, on a shard with an external URL.
func Fresh(shard, externalURL string, name logicalcluster.Name, path string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1alpha1.SchemeGroupVersion.String(), Kind: "LogicalCluster"},
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, Finalizers: []string{corev1alpha1.DeletionFinalizer},
			Annotations: map[string]string{corev1alpha1.PathAnnotation: path, tenancyv1alpha1.ShardAnnotation: shard},
		},
		Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady, URL: externalURL + "/clusters/" + string(name)},
	}
}

// settleType sets the fields of a LogicalCluster that depend on its type, as resolved from a cluster.
func (s *Scheduler) settleType(lc *corev1alpha1.LogicalCluster, from logicalcluster.Name,
	reference tenancyv1alpha1.WorkspaceTypeReference) error {
	of, err := s.Types.Find(from, reference)
	if err != nil {
		return err
	}
	aliases, err := s.Types.Aliases(of)
	if err != nil {
		return err
	}
	lc.Annotations[tenancyv1alpha1.TypeAnnotation] = of.String()
	if of.Cluster != logicalcluster.Root {
		lc.Annotations[tenancyv1alpha1.TypeClusterAnnotation] = string(of.Cluster)
	}
	lc.Spec.Initializers = workspacetypes.Initializers(aliases)
	lc.Spec.Terminators = workspacetypes.Terminators(aliases)
	return nil
}

// Begin sets the first state of a LogicalCluster.
func Begin(lc *corev1alpha1.LogicalCluster) {
	rest.FillObjectMetaSystemFields(lc)
	lc.CreationTimestamp = storage.TimeAsRead(lc.CreationTimestamp.Time)
	lc.Generation = 1
	lc.Status.Initializers = Remaining(lc.Spec.Initializers)
	lc.Status.Terminators = lc.Spec.Terminators
	if len(lc.Status.Initializers) > 0 {
		lc.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
	}
	SetLabels(lc)
}

// Remaining returns the initializers that external controllers must remove, or nil if there are none.
func Remaining(all []corev1alpha1.LogicalClusterInitializer) []corev1alpha1.LogicalClusterInitializer {
	var remaining []corev1alpha1.LogicalClusterInitializer
	for _, id := range all {
		if !workspacetypes.IsBuiltIn(id) {
			remaining = append(remaining, id)
		}
	}
	return remaining
}

// Owner returns the creator of a workspace, or nil.
func Owner(ws *tenancyv1alpha1.Workspace) *corev1alpha1.UserInfo {
	text := ws.Annotations[tenancyv1alpha1.OwnerAnnotation]
	if text == "" {
		return nil
	}
	info := authenticationv1.UserInfo{}
	if json.Unmarshal([]byte(text), &info) != nil || info.Username == "" {
		return nil
	}
	owner := &corev1alpha1.UserInfo{Username: info.Username, UID: info.UID, Groups: info.Groups}
	for key, values := range info.Extra {
		if owner.Extra == nil {
			owner.Extra = map[string]corev1alpha1.ExtraValue{}
		}
		owner.Extra[key] = corev1alpha1.ExtraValue(values)
	}
	return owner
}

// ShrinkOwner removes everything except the user name from the annotation with the creator of a workspace.
func ShrinkOwner(ws *tenancyv1alpha1.Workspace) {
	owner := Owner(ws)
	if owner == nil || (owner.UID == "" && len(owner.Groups) == 0 && len(owner.Extra) == 0) {
		return
	}
	if text, err := json.Marshal(authenticationv1.UserInfo{Username: owner.Username}); err == nil {
		ws.Annotations[tenancyv1alpha1.OwnerAnnotation] = string(text)
	}
}

// SetLocation sets the location and the state of its logical cluster in a workspace.
func (s *Scheduler) SetLocation(ws *tenancyv1alpha1.Workspace, name logicalcluster.Name, lc *corev1alpha1.LogicalCluster) {
	shard := lc.Annotations[tenancyv1alpha1.ShardAnnotation]
	SetPlacement(ws, shard, name)
	if shard != s.ShardName {
		ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = string(lc.UID)
	}
	ws.Spec.Cluster = string(name)
	ws.Spec.URL = s.externalURL(shard) + "/clusters/" + lc.Annotations[corev1alpha1.PathAnnotation]
	if shard, err := s.Shards.Get(logicalcluster.Root, "", shard); err == nil && shard.Labels["region"] != "" {
		metav1.SetMetaDataLabel(&ws.ObjectMeta, "region", shard.Labels["region"])
	}
	conditions.Set(&ws.Status.Conditions, corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceScheduled, Status: metav1.ConditionTrue})
	s.MirrorStatus(ws, lc)
}

// MarkDeleted returns a change for storage.Typed that marks the LogicalCluster with a UID as deleted, as a delete request does. Homes, and
// clusters without a Workspace, can be created again under the same name: another LogicalCluster is a conflict.
func MarkDeleted(uid types.UID) func(obj runtime.Object) error {
	return func(obj runtime.Object) error {
		lc := obj.(*corev1alpha1.LogicalCluster)
		if lc.UID != uid {
			return apierrors.NewConflict(logicalClusters, lc.Name, errCreatedAgain)
		}
		if lc.DeletionTimestamp == nil {
			now := metav1.Now()
			lc.DeletionTimestamp, lc.DeletionGracePeriodSeconds = &now, new(int64)
			lc.Generation++
		}
		return nil
	}
}

var errCreatedAgain = errors.New("it is another LogicalCluster, created under the same name since")
