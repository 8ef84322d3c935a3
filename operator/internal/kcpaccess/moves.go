package kcpaccess

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
)

const (
	migrations = "migration.kcp.io/v1alpha1/logicalclustermigrations"
	// listLimit is the size of a page of a list.
	listLimit = "500"
)

// Shards returns the Shard objects of an installation.
func (Registry) Shards(ctx context.Context, credentials Credentials) ([]corev1alpha1.Shard, error) {
	list := corev1alpha1.ShardList{}
	if err := callRoot(ctx, credentials, http.MethodGet, "core.kcp.io/v1alpha1/shards", nil, &list); err != nil {
		return nil, fmt.Errorf("listing the shards in kcp: %w", err)
	}
	return list.Items, nil
}

// Holdings returns a page of the logical clusters that a shard holds.
func (Registry) Holdings(ctx context.Context, credentials Credentials, name, after string) (corev1alpha1.ShardLogicalClusters, error) {
	query := url.Values{"limit": {listLimit}}
	if after != "" {
		query.Set("continue", after)
	}
	held := corev1alpha1.ShardLogicalClusters{}
	err := call(ctx, credentials, http.MethodGet, name+"/logicalclusters?"+query.Encode(), nil, &held)
	return held, err
}

// Migrations returns all LogicalClusterMigrations of an installation.
func (Registry) Migrations(ctx context.Context, credentials Credentials) ([]migrationv1alpha1.LogicalClusterMigration, error) {
	var all []migrationv1alpha1.LogicalClusterMigration
	query := url.Values{"limit": {listLimit}}
	for {
		list := migrationv1alpha1.LogicalClusterMigrationList{}
		if err := callRoot(ctx, credentials, http.MethodGet, migrations+"?"+query.Encode(), nil, &list); err != nil {
			return nil, fmt.Errorf("listing the migrations in kcp: %w", err)
		}
		all = append(all, list.Items...)
		if list.Continue == "" {
			return all, nil
		}
		query.Set("continue", list.Continue)
	}
}

// Move creates a migration of a logical cluster, unless there is one with this name.
func (Registry) Move(ctx context.Context, credentials Credentials, name string, labels map[string]string, cluster,
	destination string) error {
	m := migrationv1alpha1.LogicalClusterMigration{
		TypeMeta:   metav1.TypeMeta{APIVersion: migrationv1alpha1.SchemeGroupVersion.String(), Kind: "LogicalClusterMigration"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: destination},
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := callRoot(ctx, credentials, http.MethodPost, migrations, body, nil); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("moving logical cluster %s to shard %s: %w", cluster, destination, err)
	}
	return nil
}

// Cancel deletes a migration. kcp cancels it if it is not committed yet.
func (Registry) Cancel(ctx context.Context, credentials Credentials, name string) error {
	if err := callRoot(ctx, credentials, http.MethodDelete, migrations+"/"+name, nil, nil); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting migration %s in kcp: %w", name, err)
	}
	return nil
}
