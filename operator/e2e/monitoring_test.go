package e2e

import (
	"context"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	builders "github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// The kind ServiceMonitor belongs to a project that may not be installed. Without it, kcp runs, a condition reports it, and retries are
// slow; with it, the objects are valid for the project's own definition.
func TestServiceMonitorsAreCreatedWhenTheirKindExists(t *testing.T) {
	rs := shard("monitored")
	rs.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{
		Enabled: true, Interval: "30s", Labels: map[string]string{"prometheus": "main"}}}
	i := install(t, rs)
	i.reconcile(t)
	i.Issue(t)
	i.reconcile(t)
	i.Roll(t, "monitored-kcp")
	rs = i.reconcile(t)
	if err := says(rs.Status.Conditions, "Stalled", metav1.ConditionTrue, "KindMissing"); err != nil {
		t.Error(err)
	}
	if err := says(rs.Status.Conditions, "Available", metav1.ConditionTrue, "AsExpected"); err != nil {
		t.Error(err)
	}
	i.operator.Writes()
	if result := i.operator.Reconcile(t, i.reconciler, i.name); result.RequeueAfter.Seconds() < 10 || i.operator.Writes() != 0 {
		t.Errorf("it is in a hurry: %+v", result)
	}
	var definitions []string
	for _, file := range kcptest.PrometheusOperator.Files(t, 1) {
		if strings.HasSuffix(file, "_servicemonitors.yaml") {
			definitions = append(definitions, file)
		}
	}
	if _, err := envtest.InstallCRDs(host, envtest.CRDInstallOptions{Paths: definitions, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the operator knows the kind", func(context.Context) error {
		return says(i.reconcile(t).Status.Conditions, "Ready", metav1.ConditionTrue, "Reconciled")
	})
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(workload.ServiceMonitorKind)
	operatortest.Read(t, i.Cluster, "monitored-kcp", monitor)
	if monitor.GetLabels()["prometheus"] != "main" || !metav1.IsControlledBy(monitor, rs) {
		t.Errorf("it has the labels %v and the owners %v", monitor.GetLabels(), monitor.GetOwnerReferences())
	}
	sent, _ := workload.ServiceMonitor(labelledComponent(rs))
	for _, field := range [][]string{{"spec", "endpoints"}, {"spec", "selector"}} {
		want, _, _ := unstructured.NestedFieldNoCopy(sent.Object, field...)
		if got, _, _ := unstructured.NestedFieldNoCopy(monitor.Object, field...); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("of %v the definition keeps %v, not %v", field, got, want)
		}
	}
	etcd := etcdNamed("monitored-etcd")
	etcd.Spec.Monitoring = rs.Spec.Monitoring
	beginEtcd(t, i, etcd)
	operatortest.Read(t, i.Cluster, etcd.Name, monitor)
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if want := []any{map[string]any{"port": "metrics", "scheme": "http", "path": "/metrics", "interval": "30s"}}; !equality.Semantic.DeepEqual(endpoints, want) {
		t.Errorf("members of an etcd are scraped at %v", endpoints)
	}
	i.operator.WritesNothing(t, func() { i.reconcile(t) })
	change(t, i.Cluster, i.name, rs, func(rs *v1alpha1.RootShard) { rs.Spec.Monitoring = nil })
	i.reconcile(t)
	if err := kcptest.Gone(i.Get(t.Context(), operatortest.Key("monitored-kcp"), monitor)); err != nil {
		t.Error(err)
	}
}

// NetworkPolicies define which clients may connect to pods of kcp and to members of its etcd, and to which ports.
func TestNetworkPoliciesAllowTheNecessaryConnections(t *testing.T) {
	rs := shard("closed")
	rs.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	i := install(t, rs)
	i.reconcile(t)
	etcd := operatortest.Read(t, i.Cluster, "closed-etcd", &networkingv1.NetworkPolicy{})
	who := map[string]string{}
	for _, rule := range etcd.Spec.Ingress {
		var from []string
		for _, peer := range rule.From {
			switch {
			case peer.NamespaceSelector != nil:
				from = append(from, "namespace "+peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
			default:
				from = append(from, peer.PodSelector.MatchLabels["app.kubernetes.io/component"]+" of "+peer.PodSelector.MatchLabels["app.kubernetes.io/instance"])
			}
		}
		for _, port := range rule.Ports {
			who[port.Port.String()] = strings.Join(from, ", ")
		}
	}
	for port, want := range map[string]string{
		"client":  "rootshard of closed, etcd of closed-etcd, etcd-snapshot of closed-etcd, namespace kcp-operator",
		"peer":    "etcd of closed-etcd",
		"metrics": "",
	} {
		if got, open := who[port]; !open || got != want {
			t.Errorf("the port %s of etcd is open to %q", port, got)
		}
	}
	if etcd.Spec.PodSelector.MatchLabels["app.kubernetes.io/instance"] != "closed-etcd" || len(who) != 3 {
		t.Errorf("it is about %v, and opens %v", etcd.Spec.PodSelector, who)
	}
	kcp, _ := workload.NetworkPolicy(labelledComponent(rs))
	if rules := kcp.Spec.Ingress; len(rules) != 1 || len(rules[0].From) != 0 || len(rules[0].Ports) != 1 || rules[0].Ports[0].Port.String() != "https" {
		t.Errorf("pods of kcp are open to %+v", rules)
	}
	change(t, i.Cluster, i.name, rs, func(rs *v1alpha1.RootShard) { rs.Spec.NetworkPolicy = nil })
	i.reconcile(t)
	if err := kcptest.Gone(i.Get(t.Context(), operatortest.Key("closed-etcd"), etcd)); err != nil {
		t.Error(err)
	}
}

// labelledComponent returns the input from which a RootShard's pods are built.
func labelledComponent(rs *v1alpha1.RootShard) *workload.Component {
	return builders.Component(builders.Root(rs))
}
