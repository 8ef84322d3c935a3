package scheduling

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// HomeType is the type of homes.
var HomeType = tenancyv1alpha1.WorkspaceTypeReference{Name: "home", Path: "root"}

// Records stores the Workspaces of homes, in the cluster Homes of the context. There is one for each user, and it says which shard holds
// the home.
type Records interface {
	Workspaces
	Get(ctx context.Context, name string, out runtime.Object) error
	Create(ctx context.Context, name string, obj runtime.Object) error
}

// Home returns the Workspace of a user's home, or nil if the user has none.
func Home(ctx context.Context, records Records, user string) (*tenancyv1alpha1.Workspace, error) {
	ws := &tenancyv1alpha1.Workspace{}
	err := records.Get(logicalcluster.WithName(ctx, logicalcluster.Homes), string(pathindex.HomeCluster(user)), ws)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return ws, err
}

// CreateHome creates the home of a user on one of the shards. The Workspace is stored first, and only once: concurrent requests create one
// home. owner is the user as an annotation.
func (s *Scheduler) CreateHome(ctx context.Context, records Records, user, owner string) (*tenancyv1alpha1.Workspace, error) {
	ctx = logicalcluster.WithName(storage.WithoutRestriction(ctx), logicalcluster.Homes)
	ws, err := s.placeHome(user, owner)
	if err != nil {
		return nil, err
	}
	err = records.Create(ctx, ws.Name, ws)
	if apierrors.IsAlreadyExists(err) { // by another request of the same user
		err = records.Get(ctx, ws.Name, ws)
	}
	if err != nil {
		return nil, err
	}
	if ws.Spec.Cluster == "" {
		err = s.completeHome(ctx, records, ws)
	}
	return ws, err
}

// placeHome returns the Workspace of a new home, with its shard.
func (s *Scheduler) placeHome(user, owner string) (*tenancyv1alpha1.Workspace, error) {
	ws := &tenancyv1alpha1.Workspace{
		TypeMeta: metav1.TypeMeta{APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Kind: "Workspace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(pathindex.HomeCluster(user)), Generation: 1,
			Annotations: map[string]string{
				logicalcluster.AnnotationKey: string(logicalcluster.Homes), tenancyv1alpha1.OwnerAnnotation: owner,
				corev1alpha1.PathAnnotation: pathindex.HomePath(user),
			},
		},
		Spec:   tenancyv1alpha1.WorkspaceSpec{Type: HomeType.DeepCopy()},
		Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseScheduling},
	}
	rest.FillObjectMetaSystemFields(ws)
	shard, err := s.Shard(ws)
	if err != nil {
		return nil, err
	}
	SetPlacement(ws, shard, NameFor(ws))
	return ws, nil
}

// completeHome creates the logical cluster of a home where its Workspace is placed. What fails is left to the controller of workspaces.
func (s *Scheduler) completeHome(ctx context.Context, records Records, ws *tenancyv1alpha1.Workspace) error {
	ws.Annotations[logicalcluster.AnnotationKey] = string(logicalcluster.Homes)
	name := NameFor(ws)
	lc, err := s.LogicalCluster(ws, name)
	if err != nil {
		return err
	}
	if !s.IsElsewhere(ws) {
		if err := s.PrepareHome(ctx, logicalcluster.Homes, name, ws.UID); err != nil {
			return err
		}
		inside := logicalcluster.WithName(ctx, name)
		wait := s.ExpectCluster(name)
		err := s.Clusters.CreateAsRead(inside, corev1alpha1.LogicalClusterName, lc)
		wait(ctx, err == nil)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return s.settleHome(ctx, records, ws, lc)
	}
	if _, done := s.complete(ctx, ws, name, lc); done {
		return records.Get(ctx, ws.Name, ws)
	}
	return nil
}

// PrepareHome prepares this shard for the creation of a logical cluster of a Workspace. Only homes need that.
func (s *Scheduler) PrepareHome(ctx context.Context, parent, name logicalcluster.Name, owner types.UID) error {
	if parent != logicalcluster.Homes || s.MakeRoom == nil {
		return nil
	}
	return s.MakeRoom(ctx, name, owner)
}

// settleHome records the location of a home on this shard.
func (s *Scheduler) settleHome(ctx context.Context, records Records, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	settled := &tenancyv1alpha1.Workspace{}
	err := records.Update(ctx, ws.Name, settled, func(obj runtime.Object) error {
		live := obj.(*tenancyv1alpha1.Workspace)
		if live.UID == ws.UID && live.DeletionTimestamp == nil && live.Spec.Cluster == "" {
			live.Generation++
			s.SetLocation(live, NameFor(ws), lc)
		}
		return nil
	})
	*ws = *settled
	return err
}
