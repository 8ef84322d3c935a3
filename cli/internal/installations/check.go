package installations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// minimum is the oldest version of Kubernetes that the operator supports. It is kubeVersion of the chart.
const minimum = "1.31.0"

// Result is the result of one check.
type Result struct {
	Check string `json:"check"`
	// Status is OK, Warning or Failed.
	Status  Status `json:"status"`
	Message string `json:"message"`
}

// Status of a check.
type Status string

// Only a check that has failed prevents an installation.
const (
	OK      Status = "OK"
	Warning Status = "Warning"
	Failed  Status = "Failed"
)

// Options of the checks.
type Options struct {
	// Namespace of the operator.
	Namespace string
	// StorageClass of the etcd members. Empty: the default one.
	StorageClass string
}

// Check checks whether the operator and an installation can be installed in the cluster.
func (c *Client) Check(ctx context.Context, o Options) []Result {
	return []Result{c.checkVersion(), c.checkCertManager(), c.checkDefinitions(), c.checkPermissions(ctx, o.Namespace),
		c.checkStorage(ctx, o.StorageClass)}
}

func (c *Client) checkVersion() Result {
	const check = "Kubernetes version"
	info, err := c.Discovery.ServerVersion()
	if err != nil {
		return Result{check, Failed, "reading the version of the cluster: " + err.Error()}
	}
	parsed, err := version.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		return Result{check, Warning, fmt.Sprintf("the cluster has version %q, which cannot be compared: the operator requires %s or later",
			info.GitVersion, minimum)}
	case parsed.Major() == 0 && parsed.Minor() == 0:
		return Result{check, Warning, fmt.Sprintf("the cluster was built without a version (%s): the operator requires %s or later",
			info.GitVersion, minimum)}
	case parsed.LessThan(version.MustParseGeneric(minimum)):
		return Result{check, Failed, fmt.Sprintf("the cluster has version %s: upgrade it to %s or later", info.GitVersion, minimum)}
	}
	return Result{check, OK, info.GitVersion}
}

// served returns the kinds of a version of an API.
func (c *Client) served(gv schema.GroupVersion) (map[string]bool, error) {
	list, err := c.Discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	found := map[string]bool{}
	if list != nil {
		for _, resource := range list.APIResources {
			found[resource.Kind] = true
		}
	}
	return found, nil
}

func (c *Client) checkCertManager() Result {
	const check = "cert-manager"
	gv := schema.GroupVersion{Group: "cert-manager.io", Version: "v1"}
	found, err := c.served(gv)
	switch {
	case err != nil:
		return Result{check, Failed, "discovering " + gv.String() + ": " + err.Error()}
	case !found["Certificate"] || !found["Issuer"]:
		return Result{check, Failed, "the cluster has no Certificate and Issuer of " + gv.String() +
			": install cert-manager, see https://cert-manager.io/docs/installation/"}
	}
	return Result{check, OK, "the cluster has Certificate and Issuer of " + gv.String()}
}

func (c *Client) checkDefinitions() Result {
	const check = "Definitions of the operator"
	gv := v1alpha1.SchemeGroupVersion
	found, err := c.served(gv)
	if err != nil {
		return Result{check, Failed, "discovering " + gv.String() + ": " + err.Error()}
	}
	var missing []string
	for _, k := range kinds {
		if !found[k.kind] {
			missing = append(missing, k.kind)
		}
	}
	switch {
	case len(found) == 0 || len(missing) == len(kinds):
		return Result{check, OK, "not installed yet: the chart installs them with crds.create=true"}
	case len(missing) > 0:
		return Result{check, Failed, fmt.Sprintf("the cluster has other definitions of %s, without %s: another operator or an older version "+
			"has installed them; upgrade the chart with crds.create=true, or remove the other operator", gv, strings.Join(missing, ", "))}
	}
	return Result{check, OK, fmt.Sprintf("installed, with all %d kinds of %s", len(kinds), gv)}
}

// permission is what the user must be allowed to install the chart.
type permission struct{ verb, group, resource string }

var permissions = []permission{
	{"create", "apiextensions.k8s.io", "customresourcedefinitions"},
	{"create", "rbac.authorization.k8s.io", "clusterroles"},
	{"create", "rbac.authorization.k8s.io", "clusterrolebindings"},
	{"create", "admissionregistration.k8s.io", "validatingadmissionpolicies"},
	{"create", "", "namespaces"},
	{"create", "apps", "deployments"},
	{"create", "", "serviceaccounts"},
	{"create", "", "secrets"}, // Helm stores the release in one
}

// clusterScoped are the resources of permissions without a namespace.
var clusterScoped = []string{
	"customresourcedefinitions", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "namespaces",
}

func (c *Client) checkPermissions(ctx context.Context, namespace string) Result {
	const check = "Permissions"
	var denied []string
	for _, p := range permissions {
		in := namespace
		if slices.Contains(clusterScoped, p.resource) {
			in = ""
		}
		allowed, err := c.allowed(ctx, p, in)
		if err != nil {
			return Result{check, Failed, "reviewing your permissions: " + err.Error()}
		}
		if !allowed {
			denied = append(denied, p.verb+" "+schema.GroupResource{Group: p.group, Resource: p.resource}.String())
		}
	}
	if len(denied) > 0 {
		return Result{check, Failed, "you may not " + strings.Join(denied, ", ") + ": use the kubeconfig of an administrator of the cluster"}
	}
	return Result{check, OK, "you may install the chart in the namespace " + namespace}
}

func (c *Client) allowed(ctx context.Context, p permission, namespace string) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": p.verb, "group": p.group, "resource": p.resource, "namespace": namespace,
		}},
	}}
	resource := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	answer, err := c.Objects.Resource(resource).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

const defaultClass = "storageclass.kubernetes.io/is-default-class"

func (c *Client) checkStorage(ctx context.Context, name string) Result {
	const check = "Storage class"
	classes, err := c.list(ctx, schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}, "")
	if err != nil {
		return Result{check, Failed, err.Error()}
	}
	var names []string
	var chosen *unstructured.Unstructured
	for i := range classes {
		class := &classes[i]
		names = append(names, class.GetName())
		if class.GetName() == name || name == "" && class.GetAnnotations()[defaultClass] == "true" {
			chosen = class
		}
	}
	slices.Sort(names)
	switch {
	case chosen == nil && name != "":
		return Result{check, Failed, fmt.Sprintf("there is no StorageClass %q: choose another one. The cluster has: %s", name, listed(names))}
	case chosen == nil:
		return Result{check, Warning, "there is no default StorageClass: set spec.etcd.managed.storage.storageClassName of the RootShard, " +
			"of each Shard and of the CacheServer, or use external etcds. The cluster has: " + listed(names)}
	}
	if expand, _, _ := unstructured.NestedBool(chosen.Object, "allowVolumeExpansion"); !expand {
		return Result{check, Warning, fmt.Sprintf("StorageClass %s does not allow volume expansion: volumes of etcd cannot grow later",
			chosen.GetName())}
	}
	return Result{check, OK, chosen.GetName()}
}

// listed returns names, or that there are none.
func listed(names []string) string { return cmp.Or(strings.Join(names, ", "), "no StorageClass") }
