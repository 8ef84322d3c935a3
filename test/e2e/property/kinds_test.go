package property

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// standing is the number of ConfigMaps that a quota counts in a new namespace: kube-root-ca.crt. Derived objects are not counted.
const standing = 1

// kind is a type of object for operations. Every object has its value in an annotation, its color in a label, and, if content is set, its
// value also in its content.
type kind struct {
	name, group, version, plural string
	namespaced, custom           bool
	// createdByPut is true if an update of an object that does not exist creates it.
	createdByPut bool
	// content returns the fields of an object other than its metadata.
	content func(namespace, value string) map[string]any
	// held returns the value in the content of an object.
	held func(object map[string]any) string
	// system are the names of objects that the test did not create.
	system []string
}

const (
	valueAnnotation   = "example.com/value"
	clusterAnnotation = "kcp.io/cluster"
	colorLabel        = "color"
	customGroup       = "property.example.com"
)

// The namespaces of the objects of every cluster. The quota counts those of the second one.
var namespaces = []string{"p-one", "p-two"}

var (
	configMaps = &kind{
		name: "ConfigMap", version: "v1", plural: "configmaps", namespaced: true, system: []string{"kube-root-ca.crt", "extension-apiserver-authentication"},
		content: func(_, value string) map[string]any { return map[string]any{"data": map[string]any{"value": value}} },
		held:    func(object map[string]any) string { return text(object, "data", "value") },
	}
	secretKind = &kind{
		name: "Secret", version: "v1", plural: "secrets", namespaced: true,
		content: func(_, value string) map[string]any {
			encoded := base64.StdEncoding.EncodeToString([]byte(value))
			return map[string]any{"type": "Opaque", "data": map[string]any{"value": encoded}}
		},
		held: func(object map[string]any) string {
			value, err := base64.StdEncoding.DecodeString(text(object, "data", "value"))
			if err != nil {
				return err.Error()
			}
			return string(value)
		},
	}
	serviceAccounts = &kind{name: "ServiceAccount", version: "v1", plural: "serviceaccounts", namespaced: true, system: []string{"default", robot}}
	events          = &kind{
		name: "Event", version: "v1", plural: "events", namespaced: true, createdByPut: true,
		content: func(namespace, value string) map[string]any {
			return map[string]any{"message": value, "reason": "Tested", "type": "Normal", "involvedObject": map[string]any{"namespace": namespace}}
		},
		held: func(object map[string]any) string { return text(object, "message") },
	}
	widgets = &kind{
		name: "Widget", group: customGroup, version: "v1", plural: "widgets", namespaced: true, custom: true,
		content: func(_, value string) map[string]any { return map[string]any{"spec": map[string]any{"value": value}} },
		held:    func(object map[string]any) string { return text(object, "spec", "value") },
	}
	namespaceKind = &kind{
		name: "Namespace", version: "v1", plural: "namespaces", system: append([]string{"default", "kube-system"}, namespaces...),
	}
	clusterRoles = &kind{
		name: "ClusterRole", group: "rbac.authorization.k8s.io", version: "v1", plural: "clusterroles", createdByPut: true,
		system: []string{"admin", "cluster-admin", "edit", "view"},
		content: func(_, value string) map[string]any {
			return map[string]any{"rules": []any{map[string]any{
				"apiGroups": []any{"example.com"}, "resources": []any{"things"}, "verbs": []any{"get"}, "resourceNames": []any{value},
			}}}
		},
		held: func(object map[string]any) string { return text(object, "rules", "0", "resourceNames", "0") },
	}
)

var (
	namespacedKinds = []*kind{configMaps, secretKind, serviceAccounts, events, widgets}
	clusterKinds    = []*kind{namespaceKind, clusterRoles}
)

// apiVersion returns the apiVersion of the objects.
func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

// path returns the path of the collection in a namespace, or in all of them if namespace is empty.
func (k *kind) path(namespace string) string {
	path := "/api/" + k.version
	if k.group != "" {
		path = "/apis/" + k.group + "/" + k.version
	}
	if k.namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.plural
}

// isSystem reports whether the test did not create an object.
func (k *kind) isSystem(name string) bool { return contains(k.system, name) }

// fields returns the content of an object with a value.
func (k *kind) fields(namespace, value string) map[string]any {
	if k.content == nil {
		return map[string]any{}
	}
	return k.content(namespace, value)
}

// object returns the object that clients send for a state.
func (k *kind) object(id id, s state) map[string]any {
	object := k.fields(id.namespace, s.value)
	metadata := map[string]any{
		"annotations": map[string]any{valueAnnotation: s.value}, "labels": map[string]any{colorLabel: s.color},
	}
	if id.name != "" {
		metadata["name"] = id.name
	}
	if k.namespaced {
		metadata["namespace"] = id.namespace
	}
	object["apiVersion"], object["kind"], object["metadata"] = k.apiVersion(), k.name, metadata
	return object
}

// parse returns the id and the state of an object from the server, and an error if it is incomplete or belongs to another cluster.
func (k *kind) parse(cluster string, object map[string]any) (id, state, error) {
	found := id{kind: k, namespace: text(object, "metadata", "namespace"), name: text(object, "metadata", "name")}
	s := state{
		value: text(object, "metadata", "annotations", valueAnnotation), color: text(object, "metadata", "labels", colorLabel),
		note: text(object, "status", "note"), uid: text(object, "metadata", "uid"), version: text(object, "metadata", "resourceVersion"),
	}
	if of := text(object, "metadata", "annotations", clusterAnnotation); of != cluster {
		return found, s, fmt.Errorf("%s has the cluster %q", found, of)
	}
	if k.isSystem(found.name) {
		return found, s, nil
	}
	if k.held != nil && k.held(object) != s.value {
		return found, s, fmt.Errorf("%s has content %q and value %q", found, k.held(object), s.value)
	}
	return found, s, nil
}

// text returns a string in decoded JSON, or "" if it does not exist.
func text(value any, path ...string) string {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				return ""
			}
			value = v[i]
		default:
			return ""
		}
	}
	s, _ := value.(string)
	return s
}

// pointer returns the JSON pointer of a path.
func pointer(path ...string) string {
	var out strings.Builder
	for _, step := range path {
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	return out.String()
}
