package admission

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestServiceAccountsOfOtherClustersHaveNoPrivileges(t *testing.T) {
	ctx := logicalcluster.WithName(context.Background(), "here")
	for cluster, want := range map[string]bool{"here": true, "there": false} {
		for _, group := range []string{user.SystemPrivilegedGroup, authorization.LogicalClusterAdminGroup, authorization.ExternalAdminGroup, authorization.WorkspaceBootstrapper} {
			bot := &user.DefaultInfo{Name: "system:serviceaccount:ns:bot", Groups: []string{group}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {cluster}}}
			a := admission.NewAttributesRecord(nil, nil, corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), "", "cluster",
				corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), "", admission.Update, &metav1.UpdateOptions{}, false, bot)
			if got := isExempt(ctx, a); got != want {
				t.Errorf("an account of %s in %s is exempt: %t, want %t", cluster, group, got, want)
			}
			if got := mayAdminister(ctx, a); got != want {
				t.Errorf("an account of %s in %s administers: %t, want %t", cluster, group, got, want)
			}
			if got := isPrivileged(ctx, a); got != (want && group == user.SystemPrivilegedGroup) {
				t.Errorf("an account of %s in %s is privileged: %t", cluster, group, got)
			}
		}
	}
}

func TestAdministratorsWriteTheStatusOfLogicalClusters(t *testing.T) {
	ctx := logicalcluster.WithName(context.Background(), "here")
	lc := func(url string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"}, "status": map[string]any{"URL": url},
		}}
	}
	for group, want := range map[string]bool{
		user.SystemPrivilegedGroup: true, authorization.AdminGroup: true, authorization.LogicalClusterAdminGroup: true, "team-a": false, user.AllAuthenticated: false,
	} {
		a := admission.NewAttributesRecord(lc("https://new"), lc("https://old"), corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), "", "cluster",
			corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), "status", admission.Update, &metav1.UpdateOptions{}, false,
			&user.DefaultInfo{Name: "u", Groups: []string{group}})
		if err := (logicalClusterRules{}).Validate(ctx, a, nil); (err == nil) != want {
			t.Errorf("%s: %v", group, err)
		}
	}
}

func TestWhichChangesOfALogicalClusterAreAdmitted(t *testing.T) {
	full := func() *corev1alpha1.LogicalCluster {
		return &corev1alpha1.LogicalCluster{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{corev1alpha1.DeletionFinalizer, "example.org/mine"}, Annotations: map[string]string{
				corev1alpha1.PathAnnotation: "root:team",
			}},
			Spec: corev1alpha1.LogicalClusterSpec{
				Owner: &corev1alpha1.LogicalClusterOwner{Name: "team"}, CreatedBy: &corev1alpha1.UserInfo{Username: "ada"},
				Initializers: []corev1alpha1.LogicalClusterInitializer{"root:a"},
			},
			Status: corev1alpha1.LogicalClusterStatus{
				Phase: corev1alpha1.LogicalClusterPhaseReady, URL: "u", Initializers: []corev1alpha1.LogicalClusterInitializer{"root:a"},
				Terminators: []corev1alpha1.LogicalClusterTerminator{"root:b"},
			},
		}
	}
	annotated := func(key string) func(*corev1alpha1.LogicalCluster) {
		return func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[key] = "forged" }
	}
	initializing := func(lc *corev1alpha1.LogicalCluster) { lc.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing }
	inactive := func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[corev1alpha1.InactiveAnnotation] = "true" }
	for name, tc := range map[string]struct {
		before, change func(*corev1alpha1.LogicalCluster)
		want           string
	}{
		"no change is admitted":                                  {nil, func(*corev1alpha1.LogicalCluster) {}, ""},
		"labels can be changed":                                  {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Labels = map[string]string{"a": "b"} }, ""},
		"a finalizer of a client can be removed":                 {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Finalizers = lc.Finalizers[:1] }, ""},
		"the finalizer of the system cannot be removed":          {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Finalizers = lc.Finalizers[1:] }, "finalizers"},
		"spec.initializers cannot be changed":                    {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Initializers = nil }, "spec.initializers is immutable"},
		"spec.createdBy cannot be changed":                       {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Spec.CreatedBy.Username = "eve" }, "spec.createdBy is immutable"},
		"spec.owner cannot be changed":                           {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.Name = "other" }, "spec.owner is immutable"},
		"the path cannot be changed":                             {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[corev1alpha1.PathAnnotation] = "root:other" }, "are immutable"},
		"the shard cannot be changed":                            {nil, annotated(tenancyv1alpha1.ShardAnnotation), "are immutable"},
		"the epoch cannot be changed":                            {nil, annotated(tenancyv1alpha1.EpochAnnotation), "are immutable"},
		"the ancestors cannot be changed":                        {nil, annotated(tenancyv1alpha1.AncestorsAnnotation), "are immutable"},
		"the shard of the owner cannot be changed":               {nil, annotated(tenancyv1alpha1.OwnerShardAnnotation), "are immutable"},
		"status.initializers cannot be changed":                  {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Status.Initializers = nil }, "each removes its own entry"},
		"status.terminators cannot be changed":                   {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Status.Terminators = nil }, "each removes its own entry"},
		"the phase cannot be changed":                            {nil, initializing, "set by the system"},
		"the URL cannot be changed":                              {nil, func(lc *corev1alpha1.LogicalCluster) { lc.Status.URL = "v" }, "set by the system"},
		"a ready cluster can be taken out of service":            {nil, inactive, ""},
		"an initializing cluster cannot be taken out of service": {initializing, inactive, "only while the phase is Ready or Inactive"},
	} {
		old, now := full(), full()
		if tc.before != nil {
			tc.before(old)
			tc.before(now)
		}
		tc.change(now)
		if got := changeProblem(old, now); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
