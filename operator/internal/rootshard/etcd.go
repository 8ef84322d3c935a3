package rootshard

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// etcd sets the endpoints of the etcd, and creates an EtcdCluster if the spec requests one. checkEtcd checks external ones.
func (s *scope) etcd(ctx context.Context) error {
	config := s.rs.Spec.Etcd
	s.shard.Etcd.Prefix = config.Prefix
	if config.Managed == nil {
		for _, endpoint := range config.Endpoints {
			s.shard.Etcd.Endpoints = append(s.shard.Etcd.Endpoints, string(endpoint))
		}
		if config.TLSConfig != nil {
			s.shard.Etcd.Secret = config.TLSConfig.SecretRef.Name
		}
		return nil
	}
	wanted := managed(s.rs, s.shard.Labels())
	policy := etcdcluster.NetworkPolicy(wanted, metav1.LabelSelector{MatchLabels: shard.Component(s.shard).Labels()}, s.Namespace)
	n := s.rs.Spec.NetworkPolicy
	s.report.Set(conditions.Rest, apply.Optional(ctx, s.Client, s.rs, n != nil && n.Enabled, policy))
	unmade := apply.All(ctx, s.Client, s.rs, wanted)
	live := &v1alpha1.EtcdCluster{}
	if err := s.Get(ctx, client.ObjectKeyFromObject(wanted), live); client.IgnoreNotFound(err) != nil {
		return err
	} else if apierrors.IsNotFound(err) {
		return cmp.Or(unmade, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s", wanted.Name))
	} else if !metav1.IsControlledBy(live, s.rs) {
		return cmp.Or(unmade, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s to be created", wanted.Name))
	}
	// Keep the known endpoints: the pods must not change while their etcd is unhealthy.
	s.shard.Etcd.Endpoints, s.shard.Etcd.Secret = live.Status.Endpoints, live.Status.ClientSecretName
	s.shard.Etcd.Trust, s.shard.Etcd.TrustKey = etcdcluster.TrustSecretName(live.Name), etcdcluster.TrustedClients
	ready := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case ready == nil || len(live.Status.Endpoints) == 0 || live.Status.ClientSecretName == "":
		s.shard.Etcd.Secret, s.shard.Etcd.Trust = "", ""
		why := "it has no status yet"
		if c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			why = c.Message
		}
		return conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s: %s", live.Name, why)
	case ready.Status != metav1.ConditionTrue:
		return conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s: %s", live.Name, ready.Message)
	}
	if held, err := s.secretData(ctx, s.shard.Etcd.Trust); held == nil {
		s.shard.Etcd.Trust = ""
		return cmp.Or(err, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s to publish its trusted authorities", live.Name))
	}
	return unmade
}

// managed builds the EtcdCluster of a root shard. By default, it has its own CA: if it trusted the issuer of the root shard, which also
// signs certificates of users, one misissued certificate would give access to all data.
func managed(rs *v1alpha1.RootShard, labels map[string]string) *v1alpha1.EtcdCluster {
	cluster := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: rs.Name + "-etcd", Labels: labels},
		Spec:       *rs.Spec.Etcd.Managed.DeepCopy(),
	}
	cluster.Spec.ClusterDomain = cmp.Or(cluster.Spec.ClusterDomain, rs.Spec.ClusterDomain)
	if asked := rs.Annotations[v1alpha1.RolloutAnnotation]; asked != "" {
		cluster.Annotations = map[string]string{v1alpha1.RolloutAnnotation: asked}
	}
	return cluster
}
