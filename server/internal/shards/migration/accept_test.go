package migration

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

// move returns the example as an administrator has created it in root.
func move(change ...func(*migrationv1alpha1.LogicalClusterMigration)) *migrationv1alpha1.LogicalClusterMigration {
	obj := objecttest.In("root", &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: example.Name, UID: example.UID},
		Spec: migrationv1alpha1.LogicalClusterMigrationSpec{
			LogicalCluster: string(example.Cluster), DestinationShard: example.Destination,
		},
		Status: migrationv1alpha1.LogicalClusterMigrationStatus{Phase: migrationv1alpha1.PhasePreparing},
	})
	for _, c := range change {
		c(obj)
	}
	return obj
}

func isDeleted(obj *migrationv1alpha1.LogicalClusterMigration) {
	now := metav1.Now()
	obj.DeletionTimestamp, obj.Finalizers = &now, []string{migrationv1alpha1.RunningFinalizer}
}

func isIn(phase migrationv1alpha1.LogicalClusterMigrationPhase) func(*migrationv1alpha1.LogicalClusterMigration) {
	return func(obj *migrationv1alpha1.LogicalClusterMigration) { obj.Status.Phase = phase }
}

func isAccepted(err error) bool { return err == nil }

func TestAMigrationIsAcceptedAsAnAdministratorHasCreatedIt(t *testing.T) {
	isCanceled := func(err error) bool { return IsCanceled(err) && apierrors.IsConflict(err) }
	unchanged := func(*Migration) {}
	for _, c := range []struct {
		what  string
		known *migrationv1alpha1.LogicalClusterMigration
		asked func(*Migration)
		want  func(error) bool
	}{
		{"as it is", move(), unchanged, isAccepted},
		{"from any shard and at any epoch, which the record decides", move(), func(m *Migration) { m.Origin, m.Epoch = "north", 7 }, isAccepted},
		{"while it runs", move(isIn(migrationv1alpha1.PhaseMigrating)), unchanged, isAccepted},
		{"under another name", move(), func(m *Migration) { m.Name = "other" }, apierrors.IsServiceUnavailable},
		{"of another cluster than root", objecttest.In("tenant", move()), unchanged, apierrors.IsServiceUnavailable},
		{"created again", move(), func(m *Migration) { m.UID = "former" }, apierrors.IsForbidden},
		{"for another logical cluster", move(), func(m *Migration) { m.Cluster = "other" }, apierrors.IsForbidden},
		{"to another shard", move(), func(m *Migration) { m.Destination = "north" }, apierrors.IsForbidden},
		{"deleted", move(isDeleted), unchanged, isCanceled},
		{"deleted, to another shard", move(isDeleted), func(m *Migration) { m.Destination = "north" }, apierrors.IsForbidden},
		{"completed", move(isIn(migrationv1alpha1.PhaseCompleted)), unchanged, isCanceled},
		{"failed", move(isIn(migrationv1alpha1.PhaseFailed)), unchanged, isCanceled},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := example
			c.asked(&m)
			err := AcceptsFrom(objecttest.New(t, c.known).Set.LogicalClusterMigrations)(t.Context(), m)
			if !c.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
