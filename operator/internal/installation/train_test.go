package installation_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

const newImage = "registry.example.com/kcp:v1.1.0"

// train has the workloads of an installation, in the order of their upgrade.
var train = []string{"cache-cache-server", "kcp-kcp", "east-shard-kcp", "west-shard-kcp", "views-virtual-workspace", "public-front-proxy"}

// running returns an installation of all kinds whose pods run.
func running(t *testing.T) *world {
	t.Helper()
	objects := installation()
	for i, object := range objects {
		if object.GetName() == "west" {
			objects[i] = served("west", "views")
		}
	}
	w := newWorld(append(objects, viewsOf("views", "west"))...)
	w.settle(t)
	for _, name := range train {
		w.start(t, name)
	}
	w.reconcile(t)
	w.reconcile(t)
	return w
}

// start makes a pod of a StatefulSet ready with the current template, and the StatefulSet rolled out.
func (w *world) start(t *testing.T, name string) {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name + "-0", UID: types.UID("uid-" + name),
		Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations}, Spec: set.Spec.Template.Spec}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := client.IgnoreNotFound(w.Delete(t.Context(), pod.DeepCopy())); err != nil {
		t.Fatal(err)
	}
	w.MustCreate(t, pod)
	w.Roll(t, name)
}

// upgraded returns the workloads with the new image.
func (w *world) upgraded(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range train {
		if operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image == newImage {
			names = append(names, name)
		}
	}
	return names
}

// upgrade changes the image of the RootShard.
func (w *world) upgrade(t *testing.T, change func(*v1alpha1.RootShard)) {
	t.Helper()
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v1.1.0"}
	if change != nil {
		change(rs)
	}
	rs.Generation++
	w.MustUpdate(t, rs)
}

// reconciles until nothing changes.
func (w *world) reconcileAll(t *testing.T) {
	t.Helper()
	for range 3 {
		w.reconcile(t)
	}
}

func TestAnInstallationIsUpgradedOneComponentAfterTheOther(t *testing.T) {
	w := running(t)
	w.upgrade(t, nil)
	for i, name := range train {
		w.reconcileAll(t)
		if got := w.upgraded(t); !slices.Equal(got, train[:i+1]) {
			t.Fatalf("when %v are upgraded, these have the new image: %v", train[:i], got)
		}
		w.start(t, name)
	}
	w.reconcileAll(t)
	for _, object := range []client.Object{&v1alpha1.CacheServer{}, &v1alpha1.RootShard{}, &v1alpha1.Shard{}, &v1alpha1.FrontProxy{}} {
		object.SetName(map[string]string{"*v1alpha1.CacheServer": "cache", "*v1alpha1.RootShard": "kcp", "*v1alpha1.Shard": "west",
			"*v1alpha1.FrontProxy": "public"}[typeOf(object)])
		w.expect(t, object, "Ready", metav1.ConditionTrue, "", "")
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
}

func TestAComponentThatIsNotReadyStopsTheUpgrade(t *testing.T) {
	w := running(t)
	w.upgrade(t, nil)
	for _, name := range train[:3] {
		w.reconcileAll(t)
		if name != "east-shard-kcp" {
			w.start(t, name)
		}
	}
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:3]) {
		t.Errorf("east is not ready, and these have the new image: %v", got)
	}
	for _, object := range []client.Object{further("west"), proxy("public")} {
		w.expect(t, object, "Ready", metav1.ConditionFalse, "WaitingForUpgrade", "until Shard east is upgraded")
		w.expect(t, object, "Available", metav1.ConditionTrue, "", "")
	}
	// The root shard becomes unhealthy: an upgrade that has begun is not reverted.
	pods := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	pods.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, pods)
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:3]) {
		t.Errorf("the root shard is not ready, and these have the new image: %v", got)
	}
}

func TestAPausedUpgradeContinuesLater(t *testing.T) {
	w := running(t)
	w.upgrade(t, func(rs *v1alpha1.RootShard) { rs.Spec.Upgrade = &v1alpha1.UpgradeSpec{Paused: true} })
	for _, name := range train[:2] {
		w.reconcileAll(t)
		w.start(t, name)
	}
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:2]) {
		t.Errorf("the upgrade is paused, and these have the new image: %v", got)
	}
	w.expect(t, further("east"), "Ready", metav1.ConditionFalse, "UpgradePaused", "spec.upgrade.paused of RootShard kcp")
	w.upgrade(t, func(rs *v1alpha1.RootShard) { rs.Spec.Upgrade = nil })
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:3]) {
		t.Errorf("the upgrade is not paused, and these have the new image: %v", got)
	}
}

func TestVersionsOfAnInstallationAreAtMostOneMinorVersionApart(t *testing.T) {
	pinned := func(tag string) (*world, *v1alpha1.Shard) {
		w := running(t)
		west := operatortest.Read(t, w.Cluster, "west", &v1alpha1.Shard{})
		west.Spec.Image = &v1alpha1.ImageSpec{Tag: tag}
		w.MustUpdate(t, west)
		w.reconcileAll(t)
		return w, west
	}
	w, west := pinned("v1.1.0")
	w.expect(t, west, "Stalled", metav1.ConditionTrue, "VersionRefused", "RootShard kcp has run kcp v1.0.0")
	w, west = pinned("v1.0.0") // stays behind
	w.upgrade(t, nil)
	for _, name := range []string{"cache-cache-server", "kcp-kcp", "east-shard-kcp"} {
		w.reconcileAll(t)
		w.start(t, name)
	}
	w.reconcileAll(t)
	w.expect(t, west, "Ready", metav1.ConditionTrue, "", "")
	if got := w.upgraded(t); slices.Contains(got, "west-shard-kcp") || !slices.Contains(got, "public-front-proxy") {
		t.Errorf("west has an image of its own, and these have the new image: %v", got)
	}
	w.upgrade(t, func(rs *v1alpha1.RootShard) { rs.Spec.Image.Tag = "v1.2.0" })
	w.reconcileAll(t)
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	c := meta.FindStatusCondition(rs.Status.Conditions, "Stalled")
	if c == nil || c.Reason != "VersionRefused" || !strings.Contains(c.Message, "Shard west runs kcp v1.0.0") {
		t.Errorf("a root shard two minor versions ahead: %+v", c)
	}
}
