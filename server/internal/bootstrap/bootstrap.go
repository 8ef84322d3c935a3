// Package bootstrap contains the objects of the logical cluster root in every installation: the workspace types, the
// permissions to use them, the shard, and exports of the APIs that the server itself serves.
package bootstrap

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Annotations of manifests.
const (
	createOnly = "bootstrap.kcp.io/create-only" // changes by users are preserved
	battery    = "bootstrap.kcp.io/battery"     // only with this battery
)

const fieldManager = "kcp-bootstrap"

var resources = map[string]schema.GroupVersionResource{
	"WorkspaceType":      tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes"),
	"APIResourceSchema":  apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"),
	"APIExport":          apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"),
	"APIBinding":         apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"),
	"Shard":              corev1alpha1.SchemeGroupVersion.WithResource("shards"),
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

var logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")

// Shard describes this shard.
type Shard struct {
	Name, BaseURL, ExternalURL, VirtualWorkspaceURL string
	// HasOthers reports that the installation can have other shards.
	HasOthers bool
}

// Bootstrap creates the logical cluster root and its content, and updates existing objects. homeCreators are the groups
// whose members get a home workspace.
func Bootstrap(ctx context.Context, client dynamic.Interface, shard Shard, system System, batteries sets.Set[string],
	homeCreators []string) error {
	ctx = logicalcluster.WithName(ctx, logicalcluster.Root)
	if err := makeCluster(ctx, client, logicalcluster.Root, "root:root"); err != nil {
		return err
	}
	objects, err := content(shard, batteries)
	if err != nil {
		return err
	}
	exported, err := system.content()
	if err != nil {
		return err
	}
	objects = slices.Concat(objects, exported, homes(homeCreators))
	for _, obj := range objects {
		if err := apply(ctx, client, obj); err != nil {
			return fmt.Errorf("%s %s in %s: %w", obj.GetKind(), obj.GetName(), logicalcluster.Root, err)
		}
	}
	if shard.HasOthers {
		return makeCluster(ctx, client, logicalcluster.Homes, "root:universal")
	}
	return nil
}

// makeCluster creates or updates the LogicalCluster of a cluster without a Workspace.
func makeCluster(ctx context.Context, client dynamic.Interface, name logicalcluster.Name, of string) error {
	if err := applyCluster(logicalcluster.WithName(ctx, name), client, name, of); err != nil {
		return fmt.Errorf("logical cluster %s: %w", name, err)
	}
	return nil
}

func applyCluster(ctx context.Context, client dynamic.Interface, name logicalcluster.Name, of string) error {
	annotations := map[string]string{corev1alpha1.PathAnnotation: string(name), tenancyv1alpha1.TypeAnnotation: of}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	u.SetName(corev1alpha1.LogicalClusterName)
	u.SetAnnotations(annotations)
	_, err := client.Resource(logicalClusters).Create(ctx, u, metav1.CreateOptions{})
	if err == nil { // users can enter it when the server is ready, which may be before controllers run
		_, err = client.Resource(logicalClusters).Patch(ctx, corev1alpha1.LogicalClusterName, types.MergePatchType,
			[]byte(`{"status":{"phase":"`+corev1alpha1.LogicalClusterPhaseReady+`"}}`), metav1.PatchOptions{}, "status")
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.Resource(logicalClusters).Apply(ctx, corev1alpha1.LogicalClusterName, u,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// content returns the objects of root.
func content(shard Shard, batteries sets.Set[string]) ([]*unstructured.Unstructured, error) {
	files, err := manifests.ReadDir("manifests")
	if err != nil {
		return nil, err
	}
	objects := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": corev1alpha1.SchemeGroupVersion.String(), "kind": "Shard",
		"metadata": map[string]any{"name": shard.Name, "labels": map[string]any{"name": shard.Name}},
		"spec": map[string]any{
			"baseURL": shard.BaseURL, "externalURL": shard.ExternalURL, "virtualWorkspaceURL": shard.VirtualWorkspaceURL,
		},
	}}}
	for _, file := range files {
		text, err := manifests.ReadFile("manifests/" + file.Name())
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			obj := &unstructured.Unstructured{}
			err := decoder.Decode(&obj.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("manifest %s: %w", file.Name(), err)
			}
			if needed := obj.GetAnnotations()[battery]; needed == "" || batteries.Has(needed) {
				objects = append(objects, obj)
			}
		}
	}
	return objects, nil
}

// homes returns the objects that allow the members of groups to have a home.
func homes(groups []string) []*unstructured.Unstructured {
	const name = "system:kcp:home-clusterworkspace-create"
	var subjects []any
	for _, group := range groups {
		subjects = append(subjects, map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group})
	}
	return []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
		"rules": []any{map[string]any{
			"apiGroups": []any{tenancyv1alpha1.SchemeGroupVersion.Group}, "resources": []any{"workspaces"}, "resourceNames": []any{"~"},
			"verbs": []any{"get", "create"},
		}},
	}}, {Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": subjects,
	}}}
}

func apply(ctx context.Context, client dynamic.Interface, obj *unstructured.Unstructured) error {
	resource, ok := resources[obj.GetKind()]
	if !ok {
		return fmt.Errorf("unknown kind")
	}
	if obj.GetAnnotations()[createOnly] == "true" {
		_, err := client.Resource(resource).Create(ctx, obj, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	_, err := client.Resource(resource).Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
