package installations

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Limits of a report.
const (
	// DefaultLogBytes is the size of the end of each log.
	DefaultLogBytes = 1 << 20
	// maxLogs is the number of logs.
	maxLogs = 200
)

// Report collects an installation for support.
type Report struct {
	Client    *Client
	Namespace string
	// LogBytes is the maximum size of each log.
	LogBytes int64
	// Progress reports what is read.
	Progress func(what string)
	Now      time.Time

	secrets redactor
	files   map[string][]byte
	failed  []string
}

// SecretInfo is what a report has of a Secret.
type SecretInfo struct {
	Name string   `json:"name"`
	Type string   `json:"type"`
	Keys []string `json:"keys"`
}

// Write collects everything, and writes it as a compressed archive. What cannot be read is listed in the file errors.txt.
func (r *Report) Write(ctx context.Context, w io.Writer) (files int, err error) {
	r.files = map[string][]byte{}
	if err := r.readSecrets(ctx); err != nil {
		return 0, err // without their values, they could not be removed from the rest
	}
	r.readObjects(ctx)
	r.readStatus(ctx)
	r.readPods(ctx)
	r.readEvents(ctx)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if len(r.failed) > 0 {
		var text []byte
		for _, line := range r.failed {
			text = fmt.Appendln(text, line)
		}
		r.files["errors.txt"] = text
	}
	return len(r.files), r.archive(w)
}

// archive writes the files, without credentials.
func (r *Report) archive(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	directory := "kcp-report-" + r.Namespace + "/"
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		content := r.files[name]
		if name != "secrets.yaml" { // it has only names, which a pattern could mistake for values
			content = r.secrets.redact(content)
		}
		header := &tar.Header{Name: directory + name, Mode: 0o600, Size: int64(len(content)), ModTime: r.Now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func (r *Report) fail(what string, err error) { r.failed = append(r.failed, what+": "+err.Error()) }

func (r *Report) add(name string, content any) {
	encoded, err := yaml.Marshal(content)
	if err != nil {
		r.fail(name, err)
		return
	}
	r.files[name] = encoded
}

// readSecrets adds the names and keys of Secrets, and remembers their values to remove them elsewhere.
func (r *Report) readSecrets(ctx context.Context) error {
	r.Progress("secrets (names and keys)")
	items, err := r.Client.list(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), r.Namespace)
	if err != nil {
		return fmt.Errorf("%w: a report requires permission to list Secrets, so that it can remove their values from logs", err)
	}
	all := []SecretInfo{}
	for i := range items {
		data, _, err := unstructured.NestedStringMap(items[i].Object, "data")
		if err != nil {
			return fmt.Errorf("secret %s: %w", items[i].GetName(), err)
		}
		kind, _, _ := unstructured.NestedString(items[i].Object, "type")
		for key, encoded := range data {
			value, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return fmt.Errorf("secret %s: key %s: %w", items[i].GetName(), key, err)
			}
			r.secrets.keep(value)
		}
		all = append(all, SecretInfo{Name: items[i].GetName(), Type: kind, Keys: slices.Sorted(maps.Keys(data))})
	}
	r.add("secrets.yaml", all)
	return nil
}

// cleaned returns an object without what is long, or repeats the rest.
func cleaned(object *unstructured.Unstructured) map[string]any {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	object.SetAnnotations(annotations)
	return object.Object
}

// others are resources, besides those of the operator, that are added as a whole.
var others = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	{Group: "cert-manager.io", Version: "v1", Resource: "certificates"},
	{Group: "cert-manager.io", Version: "v1", Resource: "issuers"},
}

func (r *Report) readObjects(ctx context.Context) {
	for _, k := range kinds {
		r.readResource(ctx, v1alpha1.SchemeGroupVersion.WithResource(k.resource))
	}
	for _, resource := range others {
		r.readResource(ctx, resource)
	}
}

func (r *Report) readResource(ctx context.Context, resource schema.GroupVersionResource) {
	r.Progress(resource.Resource)
	items, err := r.Client.list(ctx, resource, r.Namespace)
	if err != nil {
		r.fail(resource.Resource, err)
		return
	}
	for i := range items {
		r.add("objects/"+resource.Resource+"/"+items[i].GetName()+".yaml", cleaned(&items[i]))
	}
}

func (r *Report) readStatus(ctx context.Context) {
	o, err := r.Client.Read(ctx, r.Namespace)
	if err != nil {
		r.fail("status", err)
	}
	r.add("status.yaml", Summarize(r.Namespace, "", o))
	results := []Result{r.Client.checkVersion(), r.Client.checkCertManager(), r.Client.checkDefinitions()}
	r.add("cluster.yaml", results)
}

// readPods adds the state of pods, and the ends of their logs.
func (r *Report) readPods(ctx context.Context) {
	r.Progress("pods")
	items, err := r.Client.list(ctx, corev1.SchemeGroupVersion.WithResource("pods"), r.Namespace)
	if err != nil {
		r.fail("pods", err)
		return
	}
	logs := 0
	for i := range items {
		pod := &items[i]
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		r.add("pods/"+pod.GetName()+".yaml", map[string]any{
			"name": pod.GetName(), "labels": pod.GetLabels(), "created": pod.GetCreationTimestamp(), "node": node, "status": pod.Object["status"],
		})
		for _, c := range containersOf(pod) {
			if logs += 1; logs > maxLogs {
				r.failed = append(r.failed, fmt.Sprintf("logs of pod %s: a report has at most %d logs", pod.GetName(), maxLogs))
				break
			}
			r.readLog(ctx, pod.GetName(), c.Name, false)
			if c.RestartCount > 0 {
				r.readLog(ctx, pod.GetName(), c.Name, true)
			}
		}
	}
}

// containersOf returns the states of the containers of a pod.
func containersOf(pod *unstructured.Unstructured) []corev1.ContainerStatus {
	status := corev1.PodStatus{}
	encoded, err := json.Marshal(pod.Object["status"])
	if err != nil || json.Unmarshal(encoded, &status) != nil {
		return nil
	}
	return slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
}

func (r *Report) readLog(ctx context.Context, pod, container string, previous bool) {
	name := "logs/" + pod + "/" + container
	if previous {
		name += ".previous"
	}
	r.Progress(name)
	content, err := r.Client.Logs(ctx, r.Namespace, pod, container, previous, r.LogBytes)
	if err != nil {
		r.fail(name, err)
		return
	}
	if n := int64(len(content)); n > r.LogBytes {
		content = content[n-r.LogBytes:]
	}
	r.files[name+".log"] = content
}

func (r *Report) readEvents(ctx context.Context) {
	r.Progress("events")
	items, err := r.Client.list(ctx, schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, r.Namespace)
	if err != nil {
		r.fail("events", err)
		return
	}
	var all []any
	for i := range items {
		o := items[i].Object
		all = append(all, map[string]any{"created": items[i].GetCreationTimestamp(), "type": o["type"], "reason": o["reason"],
			"note": o["note"], "regarding": o["regarding"], "series": o["series"], "count": o["deprecatedCount"]})
	}
	r.add("events.yaml", all)
}
