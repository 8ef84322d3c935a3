package rootshard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/rootshard"
)

// TestMain collects garbage less often. The tests keep little memory, and encode many objects.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}

const image = "registry.example.com/kcp:v1"

// external returns a root shard with an external etcd.
func external() *v1alpha1.RootShard {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 6443}
	rs.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{"https://etcd:2379"}
	return rs
}

type world struct {
	*operatortest.Cluster
	reconciler *rootshard.Reconciler
	deaths     *operatortest.Deaths // nil if operators do not end
}

func newWorld(objects ...client.Object) *world {
	c := operatortest.New(objects...)
	return &world{Cluster: c, reconciler: &rootshard.Reconciler{Environment: component.Environment{Client: c, Live: c, Recorder: c.Events, DefaultImage: image}}}
}

func (w *world) reconcile(t *testing.T) *v1alpha1.RootShard {
	t.Helper()
	for ended := w.deaths != nil; ended; {
		next := *w.reconciler
		next.Client = w.deaths.Next().Client(w.Cluster)
		_, err := next.Reconcile(t.Context(), ctrl.Request{NamespacedName: operatortest.Key("kcp")})
		ended = errors.Is(err, operatortest.ErrEnded)
	}
	w.Reconcile(t, w.reconciler, "kcp")
	return operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
}

// settle simulates all steps until the pods run.
func (w *world) settle(t *testing.T) *v1alpha1.RootShard {
	t.Helper()
	w.reconcile(t)
	w.Issue(t)
	w.reconcile(t)
	w.Roll(t, "kcp-kcp")
	return w.reconcile(t)
}

// Roll creates the pods of a StatefulSet and makes them ready, as its controller and the kubelet do.
func (w *world) Roll(t *testing.T, name string) {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
	for i := range *set.Spec.Replicas {
		w.runs(t, set, fmt.Sprintf("%s-%d", name, i), corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	}
	w.Cluster.Roll(t, name)
}

// runs creates a pod of a StatefulSet. It replaces an existing one.
func (w *world) runs(t *testing.T, set *appsv1.StatefulSet, name string, status corev1.PodStatus) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	if err := w.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	pod.Labels, pod.Spec, pod.Status = maps.Clone(set.Spec.Template.Labels), set.Spec.Template.Spec, status
	pod.CreationTimestamp, pod.UID = metav1.Now(), types.UID(uuid.NewString())
	if err := controllerutil.SetControllerReference(set, pod, w.Scheme()); err != nil {
		t.Fatal(err)
	}
	w.MustCreate(t, pod)
	w.Writes()
	return pod
}

// expect compares a condition; message is a part of its message.
func expect(t *testing.T, rs *v1alpha1.RootShard, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(rs.Status.Conditions, name)
	if c == nil || c.Status != status || reason != "" && c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("%s: got %+v, want %s %s with %q", name, c, status, reason, message)
	}
	if rs.Status.ObservedGeneration != rs.Generation {
		t.Errorf("generation %d is observed, not %d", rs.Status.ObservedGeneration, rs.Generation)
	}
}

func TestARootShardBecomesReadyAndThenNothingIsWritten(t *testing.T) {
	w := newWorld(external())
	rs := w.reconcile(t)
	expect(t, rs, "Ready", metav1.ConditionFalse, "CertificateNotReady", "Certificate kcp-ca")
	expect(t, rs, "Reconciling", metav1.ConditionTrue, "", "")
	expect(t, rs, "Stalled", metav1.ConditionFalse, "", "")
	w.Issue(t)
	rs = w.reconcile(t)
	expect(t, rs, "CertificatesReady", metav1.ConditionTrue, "", "")
	expect(t, rs, "Available", metav1.ConditionFalse, "NoPodReady", "StatefulSet kcp-kcp: none of 2 pods")
	w.Roll(t, "kcp-kcp")
	rs = w.reconcile(t)
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	if rs.Status.Phase != v1alpha1.PhaseRunning || rs.Status.URL != "https://kcp.example.com:6443" || rs.Status.Image != image {
		t.Errorf("status: %+v", rs.Status)
	}
	if n := len(rs.Status.Certificates); n != 10 {
		t.Errorf("the status has %d certificates", n)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	if n := len(w.Events.Events); n != 3 {
		t.Errorf("%d events for 3 changes of Ready", n)
	}
}

// D16: a missing reference is reported.
func TestPodsWaitForReferencedObjects(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*v1alpha1.RootShard)
		objects []client.Object
		reason  string
		message string
	}{
		{"no Secret", func(rs *v1alpha1.RootShard) {
			rs.Spec.Etcd.TLSConfig = &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "etcd"}}
		}, nil, "ReferenceNotFound", "spec.etcd.tlsConfig.secretRef: there is no Secret etcd"},
		{"no key in a Secret", func(rs *v1alpha1.RootShard) {
			rs.Spec.Etcd.TLSConfig = &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "etcd"}}
		}, []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd"}, Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x")}}},
			"KeyMissing", "Secret etcd has no key ca.crt"},
		{"no ConfigMap", func(rs *v1alpha1.RootShard) {
			rs.Spec.Audit = &v1alpha1.AuditSpec{Policy: &v1alpha1.AuditPolicySpec{ConfigMap: &v1alpha1.LocalKeyReference{Name: "audit", Key: "policy"}}}
		}, nil, "ReferenceNotFound", "spec.audit.policy.configMap: there is no ConfigMap audit"},
		{"no certificate in a bundle", func(rs *v1alpha1.RootShard) { rs.Spec.ClientCABundleRef = &v1alpha1.LocalReference{Name: "more"} },
			[]client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Data: map[string][]byte{"tls.crt": []byte("x")}}},
			"NoCertificate", "tls.crt of Secret more holds no certificate"},
		{"no Issuer", func(rs *v1alpha1.RootShard) {
			rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}
		}, nil, "IssuerNotFound", "spec.certificates.issuerRef: there is no Issuer company: create it"},
		{"no Issuer of a single certificate", func(rs *v1alpha1.RootShard) {
			rs.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Spec: &v1alpha1.CertificateSpecTemplate{
				IssuerRef: &v1alpha1.ObjectReference{Name: "public"}}}}
		}, nil, "IssuerNotFound", "spec.certificateTemplates[server].spec.issuerRef: there is no Issuer public"},
		{"no kind of issuers", func(rs *v1alpha1.RootShard) {
			rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company", Kind: "Isuer"}}
		}, nil, "UnknownIssuerKind", `no kind of issuers "Isuer": use Issuer or ClusterIssuer`},
		{"no ClusterIssuer", func(rs *v1alpha1.RootShard) {
			rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company", Kind: "ClusterIssuer"}}
		}, nil, "IssuerNotFound", "there is no ClusterIssuer company"},
		{"no key of a CA", func(rs *v1alpha1.RootShard) {
			rs.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "ca"}}
		}, []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: map[string][]byte{"tls.crt": []byte("x")}}},
			"KeyMissing", "spec.certificates.caSecretRef: Secret ca has no key tls.key: add it"},
		{"no CA", func(rs *v1alpha1.RootShard) {
			rs.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "ca"}}
		}, nil, "ReferenceNotFound", "spec.certificates.caSecretRef: there is no Secret ca"},
		{"no such cache", func(rs *v1alpha1.RootShard) {
			rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "cache"}}
		}, nil, "ReferenceNotFound", "spec.cache.ref of RootShard kcp: there is no CacheServer cache"},
		{"no such field", func(rs *v1alpha1.RootShard) { rs.Spec.DeploymentTemplate = podSpec(`{"containres": []}`) },
			nil, "InvalidPodTemplate", `unknown field "containres"`},
		{"no pods", func(rs *v1alpha1.RootShard) { rs.Spec.Replicas = new(int32(0)) }, nil, "ScaledToZero", "kcp is turned off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rs := external()
			test.change(rs)
			w := newWorld(append(test.objects, rs)...)
			w.reconcile(t)
			w.Issue(t)
			rs = w.reconcile(t)
			expect(t, rs, "Ready", metav1.ConditionFalse, test.reason, test.message)
			expect(t, rs, "Stalled", metav1.ConditionTrue, test.reason, test.message)
			if rs.Status.Phase != v1alpha1.PhaseFailed {
				t.Errorf("phase %s", rs.Status.Phase)
			}
			err := w.Get(t.Context(), operatortest.Key("kcp-kcp"), &appsv1.StatefulSet{})
			if test.reason != "ScaledToZero" && !apierrors.IsNotFound(err) {
				t.Errorf("the StatefulSet exists: %v", err)
			}
		})
	}
}

func podSpec(raw string) *v1alpha1.DeploymentTemplate {
	return &v1alpha1.DeploymentTemplate{Spec: &v1alpha1.DeploymentSpecTemplate{Template: &v1alpha1.PodTemplateSpec{
		Spec: &runtime.RawExtension{Raw: json.RawMessage(raw)}}}}
}

func TestPodsWaitForAManagedEtcd(t *testing.T) {
	rs := external()
	rs.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{Replicas: new(int32(1))}}
	rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}
	w := newWorld(rs, &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "company"}})
	w.reconcile(t)
	w.Issue(t)
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionFalse, "EtcdNotReady", "waiting for EtcdCluster kcp-etcd")
	etcd := operatortest.Read(t, w.Cluster, "kcp-etcd", &v1alpha1.EtcdCluster{})
	if etcd.Spec.TLS != nil || *etcd.Spec.Replicas != 1 || !metav1.IsControlledBy(etcd, rs) {
		t.Errorf("made %+v", etcd)
	}
	meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "CertificateNotReady", Message: "no such issuer"})
	w.MustUpdateStatus(t, etcd)
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionFalse, "EtcdNotReady", "waiting for EtcdCluster kcp-etcd: no such issuer")
	for name, data := range map[string]map[string][]byte{
		"kcp-etcd-client": {"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")}, "kcp-etcd-trust": {"clients.crt": []byte("a")},
	} {
		made := secret(name, data)
		made.Namespace = operatortest.Namespace
		w.MustCreate(t, made)
	}
	etcd.Status = v1alpha1.EtcdClusterStatus{Endpoints: []string{"https://a:2379", "https://b:2379"}, ClientSecretName: "kcp-etcd-client"}
	meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: "Available", Status: metav1.ConditionTrue, Reason: "Available"})
	w.MustUpdateStatus(t, etcd)
	expect(t, w.reconcile(t), "EtcdReady", metav1.ConditionTrue, "", "")
	args := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Args
	if all := strings.Join(args, " "); !strings.Contains(all, "--etcd-servers=https://a:2379,https://b:2379") ||
		!strings.Contains(all, "--etcd-cafile=/etc/etcd/trust/clients.crt") {
		t.Error(args)
	}
	rs = w.reconcile(t)
	rs.Annotations = map[string]string{v1alpha1.RolloutAnnotation: "now"}
	w.MustUpdate(t, rs)
	w.reconcile(t)
	etcd = operatortest.Read(t, w.Cluster, "kcp-etcd", &v1alpha1.EtcdCluster{})
	if asked := etcd.Annotations[v1alpha1.RolloutAnnotation]; asked != "now" {
		t.Errorf("the rollout annotation of the EtcdCluster is %q", asked)
	}
	meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "QuorumLost", Message: "2 of 3 members are gone"})
	w.MustUpdateStatus(t, etcd)
	w.Roll(t, "kcp-kcp")
	w.reconcile(t)
	w.WritesNothing(t, func() { rs = w.reconcile(t) })
	expect(t, rs, "Ready", metav1.ConditionFalse, "EtcdNotReady", "kcp-etcd: 2 of 3 members are gone")
}

func TestPodsAreReplacedOnlyForInputsThatTheyReadOnce(t *testing.T) {
	rs := external()
	rs.Spec.Etcd.TLSConfig = &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "etcd"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd"},
		Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")}}
	w := newWorld(rs, secret)
	w.settle(t)
	inputs := func() string {
		w.reconcile(t)
		return operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Annotations["input.operator.kcp.io/etcd"]
	}
	before := inputs()
	for _, test := range []struct {
		key  string
		same bool
	}{{"tls.crt", true}, {"tls.key", true}, {"other", true}, {"ca.crt", false}} {
		secret = operatortest.Read(t, w.Cluster, "etcd", secret)
		secret.Data[test.key] = []byte("changed")
		secret.Labels = map[string]string{"changed": test.key}
		w.MustUpdate(t, secret)
		if after := inputs(); (after == before) != test.same {
			t.Errorf("after a change of %s the hash is %s, before %s", test.key, after, before)
		}
	}
}

func TestAnAutoscalerKeepsTheNumberOfPods(t *testing.T) {
	w := newWorld(external())
	w.settle(t)
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	if *set.Spec.Replicas != 2 {
		t.Errorf("%d pods at first, want 2", *set.Spec.Replicas)
	}
	set.Spec.Replicas = new(int32(5))
	w.MustUpdate(t, set)
	expect(t, w.reconcile(t), "Ready", metav1.ConditionFalse, "RollingOut", "2 of 5 pods")
	if set = operatortest.Read(t, w.Cluster, "kcp-kcp", set); *set.Spec.Replicas != 5 {
		t.Errorf("%d pods after an autoscaler set 5", *set.Spec.Replicas)
	}
}

func TestADisabledPodDisruptionBudgetIsDeleted(t *testing.T) {
	w := newWorld(external())
	rs := w.settle(t)
	operatortest.Read(t, w.Cluster, "kcp-kcp", &policyv1.PodDisruptionBudget{})
	rs.Spec.PDB = &v1alpha1.PDBSpec{Enabled: new(false)}
	w.MustUpdate(t, rs)
	w.reconcile(t)
	if err := w.Get(t.Context(), operatortest.Key("kcp-kcp"), &policyv1.PodDisruptionBudget{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestObjectsOfOthersAreNotChanged(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kcp-kcp"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.7"}}
	w := newWorld(external(), service)
	w.reconcile(t)
	w.Issue(t)
	expect(t, w.reconcile(t), "Stalled", metav1.ConditionTrue, "NameConflict", "Service kcp-kcp exists and was not created by the operator")
	if got := operatortest.Read(t, w.Cluster, "kcp-kcp", service); len(got.OwnerReferences) > 0 || len(got.Labels) > 0 {
		t.Errorf("changed to %+v", got)
	}
	if w.Reconcile(t, w.reconciler, "kcp").RequeueAfter == 0 { // objects of others are not watched
		t.Error("no later reconciliation checks whether the name is free")
	}
}

func TestTheImageChangesOnlyWithTheSpec(t *testing.T) {
	w := newWorld(external())
	w.settle(t)
	w.reconciler.DefaultImage = "registry.example.com/kcp:v2"
	if rs := w.reconcile(t); rs.Status.Image != image {
		t.Errorf("a new operator has changed the image to %s", rs.Status.Image)
	}
	for _, test := range []struct {
		spec v1alpha1.ImageSpec
		want string
	}{
		{v1alpha1.ImageSpec{Tag: "v3"}, "registry.example.com/kcp:v3"},
		{v1alpha1.ImageSpec{}, "registry.example.com/kcp:v3"},
		{v1alpha1.ImageSpec{Repository: "localhost:5000/kcp"}, "localhost:5000/kcp:v2"},
		{v1alpha1.ImageSpec{Digest: "sha256:12"}, "registry.example.com/kcp@sha256:12"},
	} {
		rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
		rs.Spec.Image = &test.spec
		w.MustUpdate(t, rs)
		w.reconcile(t)
		w.Roll(t, "kcp-kcp")
		if rs = w.reconcile(t); rs.Status.Image != test.want {
			t.Errorf("%+v: got %s, want %s", test.spec, rs.Status.Image, test.want)
		}
	}
	w = newWorld(external())
	w.reconciler.DefaultImage = "localhost:5000/kcp@sha256:34"
	w.settle(t)
	if rs := w.reconcile(t); rs.Status.Image != w.reconciler.DefaultImage {
		t.Errorf("of a release that names images by digest, it is %s", rs.Status.Image)
	}
}

// An image is recorded when a pod is ready with it, so reverting the spec removes a bad image.
func TestAnImageWithoutAReadyPodIsNotRecorded(t *testing.T) {
	bad := &v1alpha1.ImageSpec{Tag: "no-such"}
	runs := func(w *world) string {
		t.Helper()
		return operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Image
	}
	change := func(w *world, rs *v1alpha1.RootShard, spec *v1alpha1.ImageSpec) *v1alpha1.RootShard {
		t.Helper()
		rs.Spec.Image = spec
		w.MustUpdate(t, rs)
		return w.reconcile(t)
	}
	const badImage = "registry.example.com/kcp:no-such"
	w := newWorld(external())
	rs := change(w, w.settle(t), bad)
	if got := runs(w); got != badImage || rs.Status.Image != image {
		t.Errorf("with an image that does not exist, pods have %s, and %s is recorded", got, rs.Status.Image)
	}
	for _, lost := range []bool{false, true} {
		if lost {
			rs.Status = v1alpha1.RootShardStatus{}
			w.MustUpdateStatus(t, rs)
		}
		if rs = change(w, rs, nil); runs(w) != image || rs.Status.Image != image {
			t.Errorf("status lost %t: after the change is reverted, pods are made with %s, and %s is recorded", lost, runs(w), rs.Status.Image)
		}
		rs = change(w, rs, bad)
	}

	rs = external()
	rs.Spec.Image = bad
	w = newWorld(rs)
	w.reconcile(t)
	w.Issue(t)
	rs = w.reconcile(t)
	if got := runs(w); got != badImage || rs.Status.Image != "" {
		t.Errorf("the first pods are made with %s, and %s is recorded", got, rs.Status.Image)
	}
	if change(w, rs, nil); runs(w) != image {
		t.Errorf("after a bad first image is taken out of the spec, pods are made with %s", runs(w))
	}
}

func TestPodsThatDoNotStartForMinutesAreStalled(t *testing.T) {
	w := newWorld(external())
	rs := w.settle(t)
	rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "no-such"}
	w.MustUpdate(t, rs)
	w.reconcile(t)
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Status.ReadyReplicas, set.Status.UpdatedReplicas = 1, 1
	w.MustUpdateStatus(t, set)
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "what the kubelet says"}}
	}
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "starting\nError: unknown flag: --x\n",
		StartedAt: metav1.NewTime(time.Now().Add(-time.Minute)), FinishedAt: metav1.Now()}}
	for _, test := range []struct {
		name            string
		container       corev1.ContainerStatus
		reason, message string
	}{
		{"an image that does not exist", corev1.ContainerStatus{State: waiting("ImagePullBackOff")}, "ImageUnavailable", "correct spec.image"},
		{"an invalid image name", corev1.ContainerStatus{State: waiting("InvalidImageName")}, "ImageUnavailable", "correct spec.image"},
		{"a process that crashes", corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), RestartCount: 4, LastTerminationState: crashed},
			"PodCrashes", "the process exited with code 1 (Error): Error: unknown flag: --x"},
		{"a process that crashed and was restarted", corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			RestartCount: 4, LastTerminationState: crashed}, "PodCrashes", "unknown flag: --x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := func(since time.Duration) {
				w.runs(t, set, "kcp-kcp-1", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{test.container}, Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-since))}}})
			}
			pod(time.Minute)
			expect(t, w.reconcile(t), "Ready", metav1.ConditionFalse, "RollingOut", test.message)
			expect(t, w.reconcile(t), "Stalled", metav1.ConditionFalse, "", "")
			if after := w.Reconcile(t, w.reconciler, "kcp").RequeueAfter; after < time.Minute || after > 2*time.Minute {
				t.Errorf("requeued after %v", after)
			}
			pod(4 * time.Minute)
			rs := w.reconcile(t)
			expect(t, rs, "Ready", metav1.ConditionFalse, test.reason, test.message)
			expect(t, rs, "Stalled", metav1.ConditionTrue, test.reason, "pod kcp-kcp-1: ")
			expect(t, rs, "Available", metav1.ConditionTrue, "", "")
		})
	}
	w.Roll(t, "kcp-kcp")
	expect(t, w.reconcile(t), "Stalled", metav1.ConditionFalse, "", "")
}

func TestAPodThatCannotStartIsReported(t *testing.T) {
	w := newWorld(external())
	w.reconcile(t)
	w.Issue(t)
	w.reconcile(t)
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	w.runs(t, set, "kcp-kcp-0", corev1.PodStatus{})
	for reason, want := range map[string]string{
		"ImagePullBackOff": "pod kcp-kcp-0: ImagePullBackOff: what happened: correct spec.image, or set spec.image.imagePullSecrets",
		"InvalidImageName": "correct spec.image",
		"CrashLoopBackOff": "pod kcp-kcp-0: CrashLoopBackOff: what happened",
	} {
		pod := operatortest.Read(t, w.Cluster, "kcp-kcp-0", &corev1.Pod{})
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "kcp",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "what happened"}}}}
		w.MustUpdateStatus(t, pod)
		expect(t, w.reconcile(t), "Ready", metav1.ConditionFalse, "NoPodReady", want)
	}
}

// D35: this also applies to the operator.
func TestTheBundleHasTheCAOfACustomServerIssuer(t *testing.T) {
	rs := external()
	rs.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Spec: &v1alpha1.CertificateSpecTemplate{
		IssuerRef: &v1alpha1.ObjectReference{Name: "public"}}}}
	w := newWorld(rs, &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "public"}})
	w.settle(t)
	bundle := operatortest.Read(t, w.Cluster, "kcp-merged-ca-bundle", &corev1.Secret{}).Data["tls.crt"]
	for _, authority := range []string{"kcp-server-ca", "root"} {
		if !strings.Contains(string(bundle), string(operatortest.PEM(authority))) {
			t.Errorf("%s is missing in\n%s", authority, bundle)
		}
	}
}

func TestAVolumeWithAMissingSourceIsReported(t *testing.T) {
	rs := external()
	rs.Spec.ExtraVolumes = []corev1.Volume{
		{Name: "optional", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nowhere", Optional: new(true)}}},
		{Name: "encryption", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}},
	}
	w := newWorld(rs)
	expect(t, w.reconcile(t), "ReferenceValid", metav1.ConditionFalse, "ReferenceNotFound", "spec.extraVolumes[encryption]: there is no ConfigMap gone")
}
