package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// Repairable reports whether Repair corrects a finding: the higher epoch decides.
func (f Finding) Repairable() bool { return f.Kind == Behind }

// IsOfRoot reports whether a finding is an orphan whose Workspace was on the root shard: an organization or a home.
func (f Finding) IsOfRoot() bool {
	return f.Kind == Orphaned && f.held.Owner != nil && (f.held.Owner.Cluster == root || f.held.Owner.Cluster == homes)
}

// Repair records the place with the higher epoch in a Workspace.
func (c *Client) Repair(ctx context.Context, f Finding) error {
	tenancy, err := c.in(f.record.On, f.record.Owner.Cluster, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return patch(ctx, tenancy, "workspaces", f.record.Name, map[string]any{"metadata": map[string]any{
		"uid": f.record.UID, "annotations": placeOf(f.held),
	}})
}

// placeOf returns the annotations of a Workspace with the place of its logical cluster.
func placeOf(h Held) map[string]string {
	return map[string]string{
		tenancyv1alpha1.ShardAnnotation: h.Shard, tenancyv1alpha1.ClusterAnnotation: h.Cluster,
		tenancyv1alpha1.EpochAnnotation: strconv.FormatUint(h.Epoch, 10), tenancyv1alpha1.ClusterUIDAnnotation: string(h.UID),
	}
}

// Adopt creates the Workspace of an orphan where it was, and makes it the owner.
func (c *Client) Adopt(ctx context.Context, f Finding) error {
	if f.held.Owner == nil {
		return fmt.Errorf("logical cluster %s names no Workspace that it had", f.Cluster)
	}
	core, err := c.in(f.Shard, f.Cluster, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	lc := &corev1alpha1.LogicalCluster{}
	if err := core.Get().Resource("logicalclusters").Name(corev1alpha1.LogicalClusterName).Do(ctx).Into(lc); err != nil {
		return err
	}
	on, err := c.holderOf(ctx, f.held.Owner.Cluster)
	if err != nil {
		return err
	}
	tenancy, err := c.in(on, f.held.Owner.Cluster, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err := tenancy.Post().Resource("workspaces").Body(workspaceOf(f.held, lc)).Do(ctx).Into(ws); err != nil {
		return fmt.Errorf("creating Workspace %s: %w", f.held.Owner, err)
	}
	return patch(ctx, core, "logicalclusters", lc.Name, map[string]any{
		"metadata": map[string]any{"uid": lc.UID, "annotations": map[string]any{tenancyv1alpha1.OwnerShardAnnotation: on}},
		"spec":     map[string]any{"owner": map[string]any{"uid": ws.UID}},
	})
}

// holderOf returns the shard that has a logical cluster, which must be one.
func (c *Client) holderOf(ctx context.Context, cluster string) (string, error) {
	var found []string
	for shard := range c.urls {
		core, err := c.in(shard, cluster, corev1alpha1.SchemeGroupVersion)
		if err != nil {
			return "", err
		}
		err = core.Get().Resource("logicalclusters").Name(corev1alpha1.LogicalClusterName).Do(ctx).Error()
		switch status := apierrors.APIStatus(nil); {
		case err == nil:
			found = append(found, shard)
		case !errors.As(err, &status): // it may have a later copy
			return "", fmt.Errorf("asking shard %s for logical cluster %q: %w", shard, cluster, err)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("logical cluster %s, which had the Workspace, is on %d shards, want one", cluster, len(found))
	}
	return found[0], nil
}

// workspaceOf returns the Workspace of an orphan.
func workspaceOf(h Held, lc *corev1alpha1.LogicalCluster) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{
		TypeMeta: metav1.TypeMeta{APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Kind: "Workspace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: h.Owner.Name, Annotations: placeOf(h), Finalizers: []string{tenancyv1alpha1.LogicalClusterFinalizer},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: h.Cluster, URL: lc.Status.URL},
	}
	if of := lc.Annotations[tenancyv1alpha1.TypeAnnotation]; strings.Contains(of, ":") {
		i := strings.LastIndexByte(of, ':')
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Path: of[:i], Name: of[i+1:]}
	}
	if by := lc.Spec.CreatedBy; by != nil {
		ws.Annotations[tenancyv1alpha1.OwnerAnnotation] = fmt.Sprintf(`{"username":%q}`, by.Username)
	}
	if h.Owner.Cluster == homes {
		ws.Annotations[corev1alpha1.PathAnnotation] = h.Path
	}
	return ws
}

// Delete deletes an orphan, if it is still the same object.
func (c *Client) Delete(ctx context.Context, f Finding) error {
	core, err := c.in(f.Shard, f.Cluster, corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return core.Delete().Resource("logicalclusters").Name(corev1alpha1.LogicalClusterName).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &f.held.UID}}).Do(ctx).Error()
}
