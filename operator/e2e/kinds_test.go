package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// D8: the objects of every kind are valid with the longest names, and with every optional object.
func TestLongNamesOfEveryKindWork(t *testing.T) {
	const name = "123456789b123456789c123456789d123456789" // with a letter before it 40, the most that the definitions allow
	start(t, asOperator())
	admin := cluster(t, host)
	common := v1alpha1.ComponentSpec{NetworkPolicy: &v1alpha1.NetworkPolicySpec{Enabled: true},
		Autoscaling: &v1alpha1.AutoscalingSpec{MaxReplicas: 4}}
	rs, c := shard("r"+name), &v1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "c" + name}}
	rs.Spec.ComponentSpec, rs.Spec.Cache = common, &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: c.Name}}
	rs.Spec.Etcd.Prefix = "/" + rs.Name
	c.Spec.NetworkPolicy = common.NetworkPolicy
	s := shardOf("s"+name, rs.Name)
	s.Spec.ComponentSpec, s.Spec.KCPVirtualWorkspace = common, &v1alpha1.LocalReference{Name: "v" + name}
	s.Spec.Etcd = v1alpha1.EtcdConfig{Endpoints: []v1alpha1.EtcdEndpoint{etcdEndpoint}, Prefix: "/" + s.Name}
	v := &v1alpha1.VirtualWorkspace{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "v" + name}}
	v.Spec.ComponentSpec, v.Spec.Target.ShardRef = common, &v1alpha1.LocalReference{Name: s.Name}
	v.Spec.External = v1alpha1.ExternalConfig{Hostname: "views.example.com", Port: 443}
	f := &v1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "f" + name}}
	f.Spec.ComponentSpec, f.Spec.RootShard.Reference = common, &v1alpha1.LocalReference{Name: rs.Name}
	f.Spec.Ingress = &v1alpha1.IngressSpec{Metadata: v1alpha1.Metadata{Annotations: map[string]string{"example.com/passthrough": "true"}}}
	admin.MustCreate(t, c, rs, s, v, f)
	kcptest.Eventually(t, "all kinds have pods", func(context.Context) error {
		admin.Certify(t)
		for _, set := range []string{c.Name + "-cache-server", rs.Name + "-kcp", s.Name + "-shard-kcp", f.Name + "-front-proxy"} {
			if err := admin.Get(t.Context(), operatortest.Key(set), &appsv1.StatefulSet{}); err != nil {
				return err
			}
		}
		return nil
	})
	for object, status := range map[client.Object]*v1alpha1.ComponentStatus{c: &c.Status.ComponentStatus, rs: &rs.Status.ComponentStatus,
		s: &s.Status.ComponentStatus, v: &v.Status, f: &f.Status} {
		kcptest.Eventually(t, fmt.Sprintf("%T has a status", object), func(context.Context) error {
			operatortest.Read(t, admin, object.GetName(), object)
			if meta.FindStatusCondition(status.Conditions, "Ready") == nil {
				return errors.New("it has none")
			}
			return nil
		})
		if condition := meta.FindStatusCondition(status.Conditions, "Stalled"); condition.Status == metav1.ConditionTrue {
			t.Errorf("%T is stalled: %s: %s", object, condition.Reason, condition.Message)
		}
	}
}
