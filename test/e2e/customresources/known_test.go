package customresources

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// knownDefinition returns the definition of a kind that Kubernetes also has.
func knownDefinition(group, plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	name := plural + "." + group
	annotations := map[string]string{"api-approved.kubernetes.io": "unapproved, a test"}
	if group == "" {
		name = plural + ".core"
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
			}},
		},
	}
}

// protobufClient returns a typed client that only sends and accepts protobuf.
func protobufClient(t *testing.T, cluster *kcptest.Cluster) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(cluster.Config(kcptest.Masters))
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1"}}},
			},
		},
	}
}

func TestTypedClientsUseProtobufForKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Define(t, knownDefinition("apps", "deployments", "Deployment"))
	cluster.Define(t, knownDefinition("", "services", "Service"))
	client := protobufClient(t, cluster)
	deployments := client.AppsV1().Deployments("default")
	watcher, err := deployments.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	created, err := deployments.Create(ctx, deployment("web", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.UID == "" || *created.Spec.Replicas != 2 || len(created.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("created %v", created)
	}
	event := <-watcher.ResultChan()
	if seen, ok := event.Object.(*appsv1.Deployment); !ok || seen.Name != "web" || *seen.Spec.Replicas != 2 {
		t.Errorf("the watch delivered %v", event)
	}
	created.Spec.Replicas = ptr.To(int32(3))
	if _, err := deployments.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = deployments.Update(ctx, created, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	list, err := deployments.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || *list.Items[0].Spec.Replicas != 3 {
		t.Errorf("listed %v, %v", list, err)
	}
	live := list.Items[0]
	live.Status.Replicas = 1
	if updated, err := deployments.UpdateStatus(ctx, &live, metav1.UpdateOptions{}); err != nil || updated.Status.Replicas != 1 {
		t.Errorf("got status %v, %v", updated, err)
	}
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 5
	if _, err := deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	_, err = deployments.Get(ctx, "web", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)

	services := client.CoreV1().Services("default")
	for name, watched := range map[string]kubernetes.Interface{"protobuf": client, "JSON": cluster.Kube(t, kcptest.Masters)} {
		watcher, err := watched.CoreV1().Services("default").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("watching as %s: %v", name, err)
		}
		defer watcher.Stop()
		defer func() {
			event := <-watcher.ResultChan()
			if seen, ok := event.Object.(*corev1.Service); !ok || seen.Name != "web" {
				t.Errorf("the watch as %s delivered %v", name, event)
			}
		}()
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := services.Get(ctx, "web", metav1.GetOptions{}); err != nil || got.Spec.Ports[0].Port != 80 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestKubectlPatchesKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Define(t, knownDefinition("apps", "deployments", "Deployment"))
	manifest := func(image, env string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: a, image: %q, env: [%s]}
`, image, env)
	}
	cluster.Apply(t, manifest("a:1", "{name: X, value: x}"))
	deployments := cluster.Kube(t, kcptest.Masters).AppsV1().Deployments("default")
	// Another writer adds a container, which a strategic merge of the applied list keeps.
	_, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:1"}]}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, manifest("a:2", ""))
	cluster.Kubectl(t, "set", "image", "deployments/web", "b=b:2")
	cluster.Kubectl(t, "scale", "deployments/web", "--replicas=4")
	got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for _, container := range got.Spec.Template.Spec.Containers {
		images[container.Name] = container.Image
		if len(container.Env) > 0 {
			t.Errorf("container %s still has %v", container.Name, container.Env)
		}
	}
	if len(images) != 2 || images["a"] != "a:2" || images["b"] != "b:2" || *got.Spec.Replicas != 4 {
		t.Errorf("got %v and %d replicas", images, *got.Spec.Replicas)
	}
	_, err = deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"spec":{"paused":true}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	_, err = deployments.Patch(ctx, "none", types.StrategicMergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(`[]`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonBadRequest)
}

func TestProtobufOfOtherKindsIsRefused(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Define(t, widgetDefinition(sized()))
	body, err := runtime.Encode(protobufEncoder(), deployment("web", 1))
	if err != nil {
		t.Fatal(err)
	}
	client := protobufClient(t, cluster).AppsV1().RESTClient()
	for _, request := range []*rest.Request{
		client.Post().AbsPath("/apis/demo.example.com/v1/namespaces/default/widgets"),
		client.Put().AbsPath("/apis/demo.example.com/v1/namespaces/default/widgets/web"),
		client.Put().AbsPath("/apis/demo.example.com/v1/namespaces/default/widgets/web/status"),
	} {
		result := request.SetHeader("Content-Type", runtime.ContentTypeProtobuf).SetHeader("Accept", "application/json").Body(body).Do(context.Background())
		code := 0
		result.StatusCode(&code)
		if code != http.StatusUnsupportedMediaType || !apierrors.IsUnsupportedMediaType(result.Error()) {
			t.Errorf("got %d, %v", code, result.Error())
		}
	}
}

func protobufEncoder() runtime.Encoder { return protobuf.NewSerializer(scheme.Scheme, scheme.Scheme) }
