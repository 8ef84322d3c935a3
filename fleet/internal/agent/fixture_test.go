package agent

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// running is an agent whose fleet and cluster are in memory. Tests call its steps themselves.
type running struct {
	*syncer
	fleet, cluster *dynamicfake.FakeDynamicClient
	kube           *kubefake.Clientset
}

// start returns an agent of the cluster east, with objects of the fleet, and namespaces of the cluster.
func start(t *testing.T, atFleet []runtime.Object, namespaces ...runtime.Object) *running {
	t.Helper()
	scheme := runtime.NewScheme()
	kinds := map[schema.GroupVersionResource]string{
		workloadResource: "WorkloadList", assignmentResource: "AssignmentList", clusterResource: "ClusterList",
		namespaceResource: "NamespaceList", configMaps: "ConfigMapList", deployments: "DeploymentList", widgets: "WidgetList",
		secretResource: "SecretList", {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}: "RoleBindingList",
		{Version: "v1", Resource: "resourcequotas"}:                              "ResourceQuotaList",
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}: "NetworkPolicyList",
	}
	r := &running{
		fleet:   dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, kinds, atFleet...),
		cluster: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, kinds), kube: kubefake.NewClientset(namespaces...),
	}
	r.cluster.PrependReactor("patch", "*", r.applyPatch)
	r.syncer = newSyncer(&Agent{options: Options{Cluster: "east"}, local: r.kube, localAny: r.cluster}, r.fleet)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(r.fleet, 0)
	synced, err := r.follow(factory)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	r.localFactory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(r.localFactory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), synced...) {
		t.Fatal("the caches have not synced")
	}
	return r
}

// applyPatch creates or replaces the object of a server-side apply, which the client in memory does not support.
func (r *running) applyPatch(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, ok := action.(clienttesting.PatchAction)
	if !ok || patch.GetPatchType() != types.ApplyPatchType {
		return false, nil, nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.GetPatch(), &u.Object); err != nil {
		return true, nil, err
	}
	err := r.cluster.Tracker().Update(action.GetResource(), u, action.GetNamespace())
	if apierrors.IsNotFound(err) {
		err = r.cluster.Tracker().Create(action.GetResource(), u, action.GetNamespace())
	}
	return true, u, err
}

func object(t *testing.T, typed any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func theCluster(t *testing.T) runtime.Object {
	return object(t, &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: "fleet.kcp.io/v1alpha1", Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "east"}})
}

func theAssignment(t *testing.T, change ...func(*v1alpha1.Assignment)) runtime.Object {
	a := &v1alpha1.Assignment{TypeMeta: metav1.TypeMeta{APIVersion: "fleet.kcp.io/v1alpha1", Kind: "Assignment"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1},
		Spec:       v1alpha1.AssignmentSpec{Workspace: "w", Namespace: "shop", Cluster: "east"}}
	for _, c := range change {
		c(a)
	}
	return object(t, a)
}

// theWorkload returns a ConfigMap of the assignment.
func theWorkload(t *testing.T, name string) runtime.Object {
	w := &v1alpha1.Workload{TypeMeta: metav1.TypeMeta{APIVersion: "fleet.kcp.io/v1alpha1", Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Name: "a." + name, Labels: map[string]string{assignmentLabel: "a"}}}
	w.Spec = v1alpha1.WorkloadSpec{Assignment: "a", Resource: "configmaps", Object: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"color":"blue"}}`)}}
	return object(t, w)
}

func (r *running) configMap(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := r.cluster.Resource(configMaps).Namespace("w-shop").Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func foreignNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workloadLabel: "a"}}}
}
