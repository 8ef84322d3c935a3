package rootshard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// An upgraded operator with other defaults keeps the running images.
func TestANewOperatorKeepsTheImage(t *testing.T) {
	for name, test := range map[string]struct {
		spec *v1alpha1.ImageSpec
		runs string
	}{
		"no image in the spec":  {nil, image},
		"by its repository":     {&v1alpha1.ImageSpec{Repository: "example.com/own"}, "example.com/own:v1"},
		"by its tag":            {&v1alpha1.ImageSpec{Tag: "v0.9"}, "registry.example.com/kcp:v0.9"},
		"by its digest":         {&v1alpha1.ImageSpec{Digest: "sha256:12"}, "registry.example.com/kcp@sha256:12"},
		"by repository and tag": {&v1alpha1.ImageSpec{Repository: "example.com/own", Tag: "v7"}, "example.com/own:v7"},
		"only pull secrets":     {&v1alpha1.ImageSpec{ImagePullSecrets: []v1alpha1.LocalReference{{Name: "pull"}}}, image},
	} {
		t.Run(name, func(t *testing.T) {
			rs := external()
			rs.Spec.Image = test.spec
			w := newWorld(rs)
			w.settle(t)
			w.reconciler.DefaultImage = "mirror.example.com/kcp@sha256:34"
			for _, lost := range []bool{false, true} {
				rs = w.reconcile(t)
				runs := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image
				if rs.Status.Image != test.runs || runs != test.runs {
					t.Errorf("status lost %t: pods run %s, and the status has %s", lost, runs, rs.Status.Image)
				}
				rs.Status = v1alpha1.RootShardStatus{} // as after restoring a backup, which has no status
				w.MustUpdateStatus(t, rs)
			}
		})
	}
}

// An upgraded operator with another pod template replaces no pods until the spec or the annotation changes.
func TestANewOperatorDoesNotReplacePods(t *testing.T) {
	w := newWorld(external())
	rs := w.settle(t)
	expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionFalse, "UpToDate", "")
	memory := func() string {
		t.Helper()
		rs = w.reconcile(t)
		return operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
	}
	scale := func(pods int32) {
		t.Helper()
		set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
		set.Spec.Replicas = &pods
		w.MustUpdate(t, set)
	}
	scale(4)
	memory()
	expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionFalse, "UpToDate", "") // though an autoscaler wants more
	w.Roll(t, "kcp-kcp")
	// An older operator has created another template from the same spec.
	older := func() {
		t.Helper()
		set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
		set.Annotations["operator.kcp.io/made"] = "older"
		set.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")
		w.MustUpdate(t, set)
	}
	older()
	if got := memory(); got != "1Gi" {
		t.Errorf("pods are replaced: %s", got)
	}
	expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionTrue, "OperatorChanged", "the annotation operator.kcp.io/rollout")
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	w.WritesNothing(t, func() { memory() })
	scale(5)
	if got := memory(); got != "1Gi" {
		t.Errorf("pods are replaced because an autoscaler wants more: %s", got)
	}
	expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionTrue, "", "")
	for name, change := range map[string]func(){
		"the spec":           func() { rs.Generation++ },
		"the annotation":     func() { rs.Annotations = map[string]string{v1alpha1.RolloutAnnotation: "now"} },
		"the number of pods": func() { rs.Spec.Replicas = new(int32(3)) },
		"the image":          func() { rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v2"} },
	} {
		older()
		memory()
		expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionTrue, "", "")
		change()
		w.MustUpdate(t, rs)
		if got := memory(); got != "2Gi" {
			t.Errorf("after a change of %s pods are as before: %s", name, got)
		}
		expect(t, rs, v1alpha1.ConditionRolloutHeld, metav1.ConditionFalse, "", "")
		w.Roll(t, "kcp-kcp")
		memory()
	}
	older()
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, set)
	if got := memory(); got != "2Gi" {
		t.Errorf("pods are not replaced although none is ready: %s", got)
	}
}

// pod creates a ready pod of the StatefulSet, with its current image.
func (w *world) pod(t *testing.T, name string) {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name, Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.MustCreate(t, pod)
}

func TestKCPIsUpgradedOneMinorVersionAtATime(t *testing.T) {
	rs := external()
	rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v0.5.1"}
	w := newWorld(rs)
	w.settle(t)
	w.pod(t, "first")
	if rs = w.reconcile(t); rs.Status.Version != "v0.5.1" {
		t.Errorf("version %q", rs.Status.Version)
	}
	for i, test := range []struct {
		tag, allowed string
		refused      bool
		runs         string // the recorded version afterwards
	}{
		{"v0.7.0", "", true, "v0.5.1"},
		{"v0.4.9", "", true, "v0.5.1"},
		{"v1.5.0", "", true, "v0.5.1"},
		{"v0.5.0", "", false, "v0.5.0"},
		{"v0.6.0-rc.1", "", false, ""}, // no pod of it becomes ready
		{"v0.5.2", "", false, "v0.5.2"},
		{"0.6.3", "", false, "0.6.3"},
		{"v0.5.2", "v0.4.0", true, "0.6.3"},
		{"v0.5.2", "v0.5.2", false, "v0.5.2"},
		{"v0.9.0", "v0.9.0", false, "v0.9.0"},
		{"nightly", "", false, "nightly"},
		{"v0.1.0", "", false, "v0.1.0"}, // the version of nightly is unknown
	} {
		rs.Spec.Image.Tag = test.tag
		rs.Annotations = map[string]string{v1alpha1.AllowVersionAnnotation: test.allowed}
		w.MustUpdate(t, rs)
		before := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image
		rs = w.reconcile(t)
		runs := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image
		if test.refused {
			expect(t, rs, "Stalled", metav1.ConditionTrue, "VersionRefused", "only the next minor version is allowed, not "+test.tag)
			if runs != before {
				t.Errorf("%s: pods are replaced", test.tag)
			}
			continue
		}
		if !strings.HasSuffix(runs, ":"+test.tag) {
			t.Errorf("%s: it runs %s", test.tag, runs)
		}
		if test.runs == "" {
			continue
		}
		w.pod(t, fmt.Sprintf("pod-%d", i))
		if rs = w.reconcile(t); rs.Status.Version != test.runs {
			t.Errorf("%s: version %q has run", test.tag, rs.Status.Version)
		}
	}
}

// issued sets when a certificate was issued and expires.
func (w *world) issued(t *testing.T, name string, from, to time.Duration) {
	t.Helper()
	c := operatortest.Read(t, w.Cluster, name, &certmanager.Certificate{})
	c.Status.NotBefore, c.Status.NotAfter = new(metav1.NewTime(time.Now().Add(from))), new(metav1.NewTime(time.Now().Add(to)))
	w.MustUpdateStatus(t, c)
}

func TestCertificatesThatAreNotRenewedAreReported(t *testing.T) {
	const day = 24 * time.Hour
	w := newWorld(external())
	w.settle(t)
	w.issued(t, "kcp-server", -200*day, 165*day)
	rs := w.reconcile(t)
	expect(t, rs, v1alpha1.ConditionCertificatesExpiring, metav1.ConditionFalse, "RenewedOnTime", "")
	if after := w.Reconcile(t, w.reconciler, "kcp").RequeueAfter; after < 55*day || after > 56*day { // 165 - 365/3 + 365/30
		t.Errorf("requeued after %v", after)
	}
	for len(w.Events.Events) > 0 {
		<-w.Events.Events
	}
	w.issued(t, "kcp-server", -280*day, 85*day)
	rs = w.reconcile(t)
	expect(t, rs, v1alpha1.ConditionCertificatesExpiring, metav1.ConditionTrue, "NotRenewed", "in time: kcp-server expires 20")
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	if n := len(w.Events.Events); n != 1 {
		t.Fatalf("%d events", n)
	}
	if event := <-w.Events.Events; !strings.HasPrefix(event, "Warning NotRenewed") {
		t.Errorf("the event says %s", event)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	// The certificate is due for renewal a week before it expires.
	c := operatortest.Read(t, w.Cluster, "kcp-server", &certmanager.Certificate{})
	c.Status.RenewalTime = new(metav1.NewTime(c.Status.NotAfter.Add(-7 * day)))
	w.MustUpdateStatus(t, c)
	expect(t, w.reconcile(t), v1alpha1.ConditionCertificatesExpiring, metav1.ConditionFalse, "RenewedOnTime", "")
}

func TestCertificatesAreRenewedOnDemandOnce(t *testing.T) {
	rs := external()
	rs.Annotations = map[string]string{v1alpha1.RenewAnnotation: "from the beginning"}
	w := newWorld(rs)
	rs = w.settle(t)
	issuing := func() (all []string) {
		list := &certmanager.CertificateList{}
		if err := w.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			for _, condition := range c.Status.Conditions {
				if condition.Type == "Issuing" && condition.Status == cmmeta.ConditionTrue {
					all = append(all, c.Name)
				}
			}
		}
		return all
	}
	if got := issuing(); len(got) != 0 || rs.Status.Renewed != "from the beginning" {
		t.Errorf("what was just issued is renewed: %v", got)
	}
	rs.Annotations[v1alpha1.RenewAnnotation] = "2026-11-21"
	w.MustUpdate(t, rs)
	rs = w.reconcile(t)
	if got := strings.Join(issuing(), " "); got != "kcp-external-logical-cluster-admin kcp-kcp-operator kcp-logical-cluster-admin kcp-server kcp-service-account" {
		t.Errorf("renewed are %s", got)
	}
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	w.WritesNothing(t, func() { rs = w.reconcile(t) })
	if rs.Status.Renewed != "2026-11-21" {
		t.Errorf("renewed for %q", rs.Status.Renewed)
	}
	if c := meta.FindStatusCondition(rs.Status.Conditions, "CertificatesReady"); c.Status != metav1.ConditionTrue {
		t.Errorf("while they are renewed, %+v", c)
	}
}
