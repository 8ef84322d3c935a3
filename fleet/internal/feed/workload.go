package feed

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

const (
	secrets    = "secrets"
	configMaps = "configmaps"
	// assignmentLabel is the label of workloads with the name of their assignment.
	assignmentLabel = "fleet.kcp.io/assignment"
	// lastApplied is the annotation of kubectl apply, which describes the object in the workspace.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// rootCA is a ConfigMap that every namespace of every cluster has for itself.
	rootCA = "kube-root-ca.crt"
)

// scaled are the resources whose replicas clusters share.
var scaled = map[schema.GroupResource]bool{
	{Group: "apps", Resource: "deployments"}:  true,
	{Group: "apps", Resource: "statefulsets"}: true,
	{Group: "apps", Resource: "replicasets"}:  true,
}

// claims are PersistentVolumeClaims.
var claims = schema.GroupResource{Resource: "persistentvolumeclaims"}

// isBound reports whether a PersistentVolumeClaim has a volume that several nodes cannot share. Its status is stored in the workspace, so
// that this is known after a restart of the fleet.
func isBound(claim *unstructured.Unstructured) bool {
	if claim == nil || claim.GetDeletionTimestamp() != nil {
		return false
	}
	if phase, _, _ := unstructured.NestedString(claim.Object, "status", "phase"); phase != "Bound" {
		return false
	}
	modes, _, _ := unstructured.NestedStringSlice(claim.Object, "spec", "accessModes")
	return slices.Contains(modes, "ReadWriteOnce") || slices.Contains(modes, "ReadWriteOncePod")
}

// isPlain reports whether an object cannot refer to secrets.
func isPlain(key Key) bool {
	return key.Resource.Group == "" && (key.Resource.Resource == configMaps || key.Resource.Resource == secrets)
}

// workload returns an object as the agent of a cluster sees it, or nil if it does not exist there.
func (c *content) workload(cluster string, key Key) *unstructured.Unstructured {
	a, object := c.assignments[cluster], c.objects[key]
	if object == nil || a.Spec.Draining || object.GetDeletionTimestamp() != nil {
		return nil
	}
	switch {
	case key.Resource.Group != "":
	case key.Resource.Resource == secrets && (c.used[key.Name] == 0 || isToken(object)):
		return nil
	case key.Resource.Resource == configMaps && key.Name == rootCA:
		return nil
	}
	spec := map[string]any{"assignment": a.Name, "resource": key.Resource.Resource, "object": stripped(object, key, a.Spec.Share)}
	if object.GetGeneration() > 0 {
		spec["generation"] = object.GetGeneration()
	}
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "Workload",
		"metadata": map[string]any{"name": nameOf(a, key), "uid": string(object.GetUID()), "labels": map[string]any{assignmentLabel: a.Name}},
		"spec":     spec,
	}}
	if r, ok := c.reports[key][cluster]; ok {
		status := map[string]any{}
		if r.Status != nil {
			status["object"] = r.Status
		}
		if r.Message != "" {
			status["message"] = r.Message
		}
		w.Object["status"] = status
	}
	return w
}

func isToken(secret *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(secret.Object, "type")
	return strings.HasPrefix(kind, "kubernetes.io/service-account-token") || strings.HasPrefix(kind, "bootstrap.kubernetes.io/")
}

// stripped returns an object without what belongs to the workspace. It shares fields with the object.
func stripped(object *unstructured.Unstructured, key Key, share *v1alpha1.Share) map[string]any {
	metadata := map[string]any{"name": object.GetName()}
	if labels := object.GetLabels(); len(labels) > 0 {
		metadata["labels"] = texts(labels)
	}
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		prefix, _, _ := strings.Cut(name, "/")
		return name == lastApplied || prefix == "kcp.io" || strings.HasSuffix(prefix, ".kcp.io")
	})
	if len(annotations) > 0 {
		metadata["annotations"] = texts(annotations)
	}
	out := maps.Clone(object.Object)
	delete(out, "status")
	out["metadata"] = metadata
	if share == nil || !scaled[key.Resource.GroupResource()] {
		return out
	}
	replicas, found, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if !found || err != nil {
		replicas = 1
	}
	if spec, ok := out["spec"].(map[string]any); ok {
		spec = maps.Clone(spec)
		spec["replicas"] = share.Of(replicas)
		out["spec"] = spec
	}
	return out
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// references returns the names of the secrets to which an object refers.
func references(key Key, object *unstructured.Unstructured) map[string]bool {
	used := map[string]bool{}
	if object != nil && !isPlain(key) && object.GetDeletionTimestamp() == nil {
		collect(object.Object["spec"], used)
	}
	return used
}

// refer records the secrets to which an object refers, and returns those whose first reference appeared or whose last one disappeared.
func (c *content) refer(key Key, names map[string]bool) (changed []Key) {
	former := c.refers[key]
	for name := range names {
		if former[name] {
			continue
		}
		if c.used[name]++; c.used[name] == 1 {
			changed = append(changed, secretKey(name))
		}
	}
	for name := range former {
		if names[name] {
			continue
		}
		if c.used[name]--; c.used[name] == 0 {
			delete(c.used, name)
			changed = append(changed, secretKey(name))
		}
	}
	c.refers[key] = names
	if len(names) == 0 {
		delete(c.refers, key)
	}
	return changed
}

func secretKey(name string) Key {
	return Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: secrets}, Name: name}
}

// collect adds the secrets that a value refers to by the names that fields for this have in the types of Kubernetes.
func collect(value any, used map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			collect(item, used)
		}
	case map[string]any:
		for field, below := range v {
			switch field {
			case "secretName":
				if name, ok := below.(string); ok {
					used[name] = true
				}
			case "secretRef", "secretKeyRef", "secret":
				named(below, used)
			case "imagePullSecrets":
				list, _ := below.([]any)
				for _, item := range list {
					named(item, used)
				}
			}
			collect(below, used)
		}
	}
}

func named(reference any, used map[string]bool) {
	if m, ok := reference.(map[string]any); ok {
		if name, ok := m["name"].(string); ok {
			used[name] = true
		}
	}
}
