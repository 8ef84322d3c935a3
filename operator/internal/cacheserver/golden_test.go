package cacheserver

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/workload"
)

func TestObjectsAreEqualToTheGoldenFiles(t *testing.T) {
	smallest := &v1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cache"}}
	stored := smallest.DeepCopy()
	stored.Spec.Etcd = &v1alpha1.EtcdConfig{Endpoints: []v1alpha1.EtcdEndpoint{"https://etcd:2379"}, Prefix: "/cache",
		TLSConfig: &v1alpha1.EtcdTLSConfig{SecretRef: v1alpha1.LocalReference{Name: "etcd-client"}}}
	stored.Spec.ClusterDomain = "example.local"
	stored.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "company"}}
	stored.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{Enabled: true}}
	stored.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{Enabled: true}
	for _, test := range []struct {
		name     string
		cache    *v1alpha1.CacheServer
		etcd     settings.Etcd
		replicas int32
	}{
		{"smallest", smallest, settings.Etcd{}, 1},
		{"stored", stored, settings.Etcd{Endpoints: []string{"https://etcd:2379"}, Secret: "etcd-client", Prefix: "/cache"}, 2},
	} {
		issuers, authorities, leaves := certificates(test.cache)
		c := build(test.cache, test.etcd, map[string]string{"authorities": "7d"}, "registry.example.com/kcp:v1", &test.replicas)
		set, err := workload.StatefulSet(c)
		if err != nil {
			t.Fatal(err)
		}
		objects := slices.Concat(issuers, authorities, leaves, []client.Object{workload.Service(c), set})
		if budget, wanted := workload.PodDisruptionBudget(c); wanted {
			objects = append(objects, budget)
		}
		if policy, wanted := workload.NetworkPolicy(c); wanted {
			objects = append(objects, policy)
		}
		if monitor, wanted := workload.ServiceMonitor(c); wanted {
			objects = append(objects, monitor)
		}
		operatortest.Golden(t, "testdata/"+test.name+".golden", objects)
	}
}
