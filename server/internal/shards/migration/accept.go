package migration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// errCanceled is the cause of the error for a migration that is deleted.
var errCanceled = errors.New("the migration is canceled")

// canceled is a conflict of a migration that is deleted.
type canceled struct{ *apierrors.StatusError }

// IsCanceled reports whether a migration is not accepted because it is deleted.
func IsCanceled(err error) bool {
	var c canceled
	return errors.As(err, &c)
}

// AcceptsFrom returns a function that accepts the migrations that administrators have created in root, by name and UID.
func AcceptsFrom(known informers.Lister[*migrationv1alpha1.LogicalClusterMigration]) func(context.Context, Migration) error {
	return func(_ context.Context, m Migration) error {
		obj, err := known.Get(logicalcluster.Root, "", m.Name)
		switch {
		case err != nil:
			return apierrors.NewServiceUnavailable(fmt.Sprintf("migration %q is not known to this shard yet", m.Name))
		case obj.UID != m.UID || obj.Spec.LogicalCluster != string(m.Cluster) || obj.Spec.DestinationShard != m.Destination:
			return apierrors.NewForbidden(migrationResource, m.Name, errors.New("it is another migration"))
		case obj.DeletionTimestamp != nil || obj.Status.Phase.IsFinal():
			return canceled{apierrors.NewConflict(migrationResource, m.Name, errCanceled)}
		}
		return nil
	}
}
