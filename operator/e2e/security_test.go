package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/workload"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// own returns the metadata of an object of the operator.
func own(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name, Labels: map[string]string{apply.ManagedByLabel: apply.FieldOwner}}
}

// jobOf returns a Job with a pod, as the operator creates it for snapshots.
func jobOf(pod corev1.PodSpec) *batchv1.Job {
	pod.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: own("attempt"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}}
}

func plainPod(change func(*corev1.PodSpec)) corev1.PodSpec {
	pod := workload.Restricted(nil, nil, 30, corev1.Container{Name: "c", Image: image})
	change(&pod)
	return pod
}

func raw(kind, apiVersion, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "apiVersion": apiVersion, "spec": spec}}
	object.SetNamespace(operatortest.Namespace)
	object.SetName(name)
	object.SetLabels(own(name).Labels)
	return object
}

// The cases are what an attacker with the operator's token would try.
func TestTheOperatorsTokenMayDoOnlyWhatTheOperatorDoes(t *testing.T) {
	admin, operator := cluster(t, host), cluster(t, asOperator())
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "foreign"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "foreign"}}
	foreign.Spec.ServiceAccountName = "foreign"
	admin.MustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "foreign"}}, foreign, secret)
	create := func(object client.Object) func() error {
		return func() error { return operator.Create(t.Context(), object, client.DryRunAll) }
	}
	token := func(kind corev1.SecretType, namespace string) client.Object {
		s := &corev1.Secret{ObjectMeta: own("bootstrap-token-abcdef"), Type: kind, StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef"}}
		s.Namespace, s.Annotations = namespace, map[string]string{corev1.ServiceAccountNameKey: "default"}
		return s
	}
	pod := func(change func(*corev1.PodSpec)) func() error { return create(jobOf(plainPod(change))) }
	for name, test := range map[string]struct {
		do   func() error
		says string
	}{
		"a token of a service account": {create(token(corev1.SecretTypeServiceAccountToken, "kube-system")), "Secrets of the types Opaque"},
		"a token that nodes join with": {create(token(corev1.SecretTypeBootstrapToken, "kube-system")), "Secrets of the types Opaque"},
		"a token by the API": {func() error {
			return operator.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: foreign.ObjectMeta}, &authenticationv1.TokenRequest{}, client.DryRunAll)
		}, "cannot create resource"},
		"another pod's image": {func() error {
			return operator.Patch(t.Context(), foreign.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json",
				[]byte(`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`)), client.DryRunAll)
		}, "pods foreign has no label"},
		"another Secret":             {func() error { return operator.Delete(t.Context(), secret, client.DryRunAll) }, "secrets foreign has no label"},
		"a Secret without the label": {create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "plain"}}), "has no label"},
		"a pod":                      {create(&corev1.Pod{ObjectMeta: own("pod"), Spec: plainPod(func(*corev1.PodSpec) {})}), "cannot create resource"},
		"a pod with a token":         {pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = new(true) }), "token of a service account"},
		"a pod with a projected token": {pod(func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}}}}
		}), "token of a service account"},
		"the disk of the host": {pod(func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}), "volumes of the types"},
		"a privileged StatefulSet": {create(&appsv1.StatefulSet{ObjectMeta: own("attempt"), Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: plainPod(func(p *corev1.PodSpec) {
				p.RestartPolicy = corev1.RestartPolicyAlways
				p.Containers[0].SecurityContext.AllowPrivilegeEscalation, p.Containers[0].SecurityContext.Privileged = nil, new(true)
			})}}}), "not privileged"},
		"the traffic of others": {create(&corev1.Service{ObjectMeta: own("attempt"), Spec: corev1.ServiceSpec{
			ExternalIPs: []string{"1.1.1.1"}, Ports: []corev1.ServicePort{{Port: 443}}}}), "externalIPs"},
		"an issuer that is sent a token": {create(raw("Issuer", "cert-manager.io/v1", "attempt", map[string]any{"vault": map[string]any{
			"path": "p", "server": "https://evil.example.com", "auth": map[string]any{"kubernetes": map[string]any{"role": "r",
				"serviceAccountRef": map[string]any{"name": "default"}}}}})), "types ca and selfSigned"},
		"a role": {create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "attempt"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}), "cannot create resource"},
	} {
		t.Run(name, func(t *testing.T) {
			kcptest.Eventually(t, "it is refused", func(context.Context) error { return refusal(test.do(), test.says) })
		})
	}
	if err := pod(func(*corev1.PodSpec) {})(); err != nil {
		t.Errorf("a Job such as the operator makes is refused: %v", err)
	}
	other := cluster(t, as("system:serviceaccount:kcp-operator:other"))
	if err := refusal(other.Delete(t.Context(), secret, client.DryRunAll), "cannot delete resource"); err != nil {
		t.Errorf("the policy also applies to others: %v", err)
	}
}

// refusal checks that an error is a refusal that contains words.
func refusal(err error, words string) error {
	if (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), words) {
		return nil
	}
	return &refusalError{err: err, words: words}
}

type refusalError struct {
	err   error
	words string
}

func (e *refusalError) Error() string {
	if e.err == nil {
		return "it is accepted"
	}
	return "not refused with " + e.words + ": " + e.err.Error()
}

// The policy must agree with the code of Pod Security, whose test pods are used here.
func TestThePolicyRefusesWhatPodSecurityRefuses(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission")
	list.Dir = root
	module, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "test/testdata/restricted/v1.37/*/*.yaml"))
	if err != nil || len(versions) < 80 {
		t.Fatalf("there are %d pods: %v", len(versions), err)
	}
	operator := cluster(t, asOperator())
	for _, file := range versions {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(text, pod); err != nil {
			t.Fatal(err)
		}
		if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows { // which kcp does not run on
			continue
		}
		pod.Spec.AutomountServiceAccountToken = new(false)
		for i := range pod.Spec.Volumes { // as the API server does it
			if v := &pod.Spec.Volumes[i]; v.VolumeSource == (corev1.VolumeSource{}) {
				v.EmptyDir = &corev1.EmptyDirVolumeSource{}
			}
		}
		outcome, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
		template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		if err := (workload.Security{}).Admit(&template, "spec"); (err == nil) != (outcome == "pass") {
			t.Errorf("the operator: %s of the pods that should %s: %v", name, outcome, err)
		}
		attempt := func(context.Context) error {
			job := jobOf(pod.Spec)
			job.Spec.Template.Annotations = pod.Annotations
			err := operator.Create(t.Context(), job, client.DryRunAll)
			if outcome == "pass" {
				return err
			}
			return refusal(err, "")
		}
		if err := attempt(t.Context()); err != nil {
			t.Errorf("the policy: %s of the pods that should %s: %v", name, outcome, err)
		}
	}
}

// Permission to write a RootShard must not allow users to run pods that they may not create.
func TestARootShardCannotHavePrivilegedPods(t *testing.T) {
	rs := shard("privileged")
	rs.Spec.DeploymentTemplate = &v1alpha1.DeploymentTemplate{Spec: &v1alpha1.DeploymentSpecTemplate{Template: &v1alpha1.PodTemplateSpec{
		Spec: &runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"kcp","securityContext":{"privileged":true,"allowPrivilegeEscalation":true}}],"volumes":[{"name":"h","hostPath":{"path":"/"}}]}`)}}}}
	i := install(t, rs)
	i.reconcile(t)
	i.Issue(t)
	rs = i.reconcile(t)
	if err := says(rs.Status.Conditions, "Stalled", "True", "PodForbidden"); err != nil {
		t.Error(err)
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == "Stalled" && (!strings.Contains(c.Message, "spec.deploymentTemplate: ") || !strings.Contains(c.Message, "podSecurity")) {
			t.Errorf("it says %s", c.Message)
		}
	}
	// An installation that allows such pods also has no policy against them.
	i.reconciler.Pods.Privileged = true
	_, err := i.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(rs)})
	if err := refusal(err, "volumes of the types"); err != nil {
		t.Errorf("the policy: %v", err)
	}
}

// Pods that an earlier operator created under weaker limits keep running, and can be scaled.
func TestPodsFromWeakerLimitsCanBeScaled(t *testing.T) {
	admin, operator := cluster(t, host), cluster(t, asOperator())
	selector := map[string]string{"a": "b"}
	for name, more := range map[string]func(*corev1.PodSpec){
		"made-privileged": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.AllowPrivilegeEscalation, p.Containers[0].SecurityContext.Privileged = nil, new(true)
		},
		"made-with-a-token": func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = new(true) },
	} {
		set := &appsv1.StatefulSet{ObjectMeta: own(name), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: plainPod(more)}}}
		admin.MustCreate(t, set)
		kcptest.Eventually(t, name+": another pod is refused", func(ctx context.Context) error { // by policies that take a moment to come into force
			changed := set.DeepCopy()
			changed.Spec.Template.Spec.Containers[0].Image = image + "-another"
			return refusal(operator.Patch(ctx, changed, client.MergeFrom(set), client.DryRunAll), "the operator may")
		})
		scaled := set.DeepCopy()
		scaled.Spec.Replicas = new(int32(3))
		if err := operator.Patch(t.Context(), scaled, client.MergeFrom(set)); err != nil {
			t.Errorf("%s: scaling it is refused: %v", name, err)
		}
	}
}

// The caches and the policies select the operator's objects by a label. The operator restores a removed label, and does not change objects of
// others.
func TestARemovedLabelIsRestored(t *testing.T) {
	admin := cluster(t, host)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "stranger-kcp"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	admin.MustCreate(t, foreign, shard("labelled"), shard("stranger"))
	start(t, asOperator())
	issued := func(name string, object client.Object) func(context.Context) error {
		return func(ctx context.Context) error {
			admin.Issue(t)
			return admin.Get(ctx, operatortest.Key(name), object)
		}
	}
	kcptest.Eventually(t, "there are pods", issued("labelled-kcp", &appsv1.StatefulSet{}))
	for name, object := range map[string]client.Object{
		"labelled-kcp": &corev1.Service{}, "labelled-merged-client-ca": &corev1.Secret{}, "labelled-server": &certmanager.Certificate{},
		"labelled-client-ca": &certmanager.Issuer{},
	} {
		change(t, admin, name, object, func(o client.Object) {
			labels := o.GetLabels()
			delete(labels, apply.ManagedByLabel)
			o.SetLabels(labels)
		})
		kcptest.Eventually(t, "the label of "+name+" is put back", func(ctx context.Context) error {
			if err := admin.Get(ctx, operatortest.Key(name), object); err != nil {
				return err
			}
			if object.GetLabels()[apply.ManagedByLabel] != apply.FieldOwner {
				return fmt.Errorf("it has the labels %v", object.GetLabels())
			}
			return nil
		})
	}
	set := operatortest.Read(t, admin, "labelled-kcp", &appsv1.StatefulSet{})
	change(t, admin, "labelled-kcp", set, func(set *appsv1.StatefulSet) { delete(set.Labels, apply.ManagedByLabel) })
	kcptest.Eventually(t, "the label of the StatefulSet is put back", func(ctx context.Context) error {
		if err := admin.Get(ctx, operatortest.Key("labelled-kcp"), set); err != nil {
			return err
		}
		if set.Labels[apply.ManagedByLabel] != apply.FieldOwner {
			return fmt.Errorf("it has the labels %v", set.Labels)
		}
		return nil
	})
	kcptest.Eventually(t, "the conflict with another object is reported", func(ctx context.Context) error {
		rs := &v1alpha1.RootShard{}
		if err := admin.Get(ctx, operatortest.Key("stranger"), rs); err != nil {
			return err
		}
		return says(rs.Status.Conditions, "Stalled", metav1.ConditionTrue, "NameConflict")
	})
	if after := operatortest.Read(t, admin, "stranger-kcp", &corev1.Service{}); after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Service of another owner was changed: %+v", after.ObjectMeta)
	}
}

// forPeople reports whether a role extends the roles of Kubernetes for users.
func forPeople(role *unstructured.Unstructured) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(role.GetLabels())), func(label string) bool {
		return strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-")
	})
}

// Users who may edit or view a namespace may do the same with all of the operator's kinds.
func TestRolesOfUsersHaveTheKindsOfTheOperator(t *testing.T) {
	definitions, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatal(definitions, err)
	}
	extended := map[string]bool{}
	for _, role := range render(t)["ClusterRole"] {
		if !forPeople(role) {
			continue
		}
		for label := range role.GetLabels() {
			extended[strings.TrimPrefix(label, "rbac.authorization.k8s.io/aggregate-to-")] = true
		}
		text, _ := json.Marshal(role.Object["rules"])
		for _, definition := range definitions {
			_, resource, _ := strings.Cut(strings.TrimSuffix(filepath.Base(definition), ".yaml"), "_")
			if !strings.Contains(string(text), `"`+resource+`"`) {
				t.Errorf("%s has no %s", role.GetName(), resource)
			}
		}
	}
	if !extended["admin"] || !extended["edit"] || !extended["view"] {
		t.Errorf("the roles are %v", extended)
	}
	if len(slices.DeleteFunc(render(t, "rbac.aggregate=false")["ClusterRole"], func(r *unstructured.Unstructured) bool { return !forPeople(r) })) > 0 {
		t.Error("rbac.aggregate=false has no effect")
	}
}

func TestRolesOfTheOperatorAreNarrow(t *testing.T) {
	for _, settings := range [][]string{nil, {"watchNamespaces={a,b}"}} {
		objects := render(t, settings...)
		for _, role := range append(objects["ClusterRole"], objects["Role"]...) {
			if forPeople(role) {
				continue
			}
			rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
			for _, rule := range rules {
				text, _ := json.Marshal(rule)
				for _, wide := range []string{`"*"`, `"escalate"`, `"bind"`, `"impersonate"`, `"deletecollection"`, `"pods/exec"`, `"serviceaccounts`, `"nodes`, `"roles"`} {
					if strings.Contains(string(text), wide) {
						t.Errorf("%s %s has %s in %s", role.GetKind(), role.GetName(), wide, text)
					}
				}
			}
		}
	}
}
