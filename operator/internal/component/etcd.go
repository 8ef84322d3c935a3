package component

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// UseEtcd sets the endpoints of the etcd, and creates an EtcdCluster in the domain if the spec requests one. CheckEtcd checks external
// ones.
func (s *Scope) UseEtcd(ctx context.Context, config v1alpha1.EtcdConfig, domain string) error {
	s.Etcd.Prefix = config.Prefix
	if s.managed = config.Managed != nil; !s.managed {
		for _, endpoint := range config.Endpoints {
			s.Etcd.Endpoints = append(s.Etcd.Endpoints, string(endpoint))
		}
		if config.TLSConfig != nil {
			s.Etcd.Secret = config.TLSConfig.SecretRef.Name
		}
		return nil
	}
	wanted := s.managedEtcd(config.Managed, domain)
	clients := []map[string]string{s.Selector}
	if s.Follower != "" {
		clients = append(clients, s.FollowerSelector)
	}
	policy := etcdcluster.NetworkPolicy(wanted, clients, s.Namespace)
	n := s.Spec.NetworkPolicy
	s.Report.Set(conditions.Rest, apply.Optional(ctx, s.Client, s.Owner, n != nil && n.Enabled, policy))
	unmade := apply.All(ctx, s.Client, s.Owner, wanted)
	live := &v1alpha1.EtcdCluster{}
	if err := s.Get(ctx, client.ObjectKeyFromObject(wanted), live); client.IgnoreNotFound(err) != nil {
		return err
	} else if apierrors.IsNotFound(err) {
		return cmp.Or(unmade, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s", wanted.Name))
	} else if !metav1.IsControlledBy(live, s.Owner) {
		return cmp.Or(unmade, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s to be created", wanted.Name))
	}
	// Keep the known endpoints: the pods must not change while their etcd is unhealthy.
	s.Etcd.Endpoints, s.Etcd.Secret = live.Status.Endpoints, live.Status.ClientSecretName
	s.Etcd.Trust, s.Etcd.TrustKey = etcdcluster.TrustSecretName(live.Name), etcdcluster.TrustedClients
	ready := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case ready == nil || len(live.Status.Endpoints) == 0 || live.Status.ClientSecretName == "":
		s.Etcd.Secret, s.Etcd.Trust = "", ""
		why := "it has no status yet"
		if c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			why = c.Message
		}
		return conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s: %s", live.Name, why)
	case ready.Status != metav1.ConditionTrue:
		return conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s: %s", live.Name, ready.Message)
	}
	if held, err := s.secretData(ctx, s.Etcd.Trust); held == nil {
		s.Etcd.Trust = ""
		return cmp.Or(err, conditions.Wait("EtcdNotReady", "waiting for EtcdCluster %s to publish its trusted authorities", live.Name))
	}
	return unmade
}

// waitForMembers returns a condition if pods are not replaced yet, because the etcd that the operator runs for them restarts or replaces
// members, or has just done so. Otherwise new pods would wait for etcd while the former ones end, or all former ones would end at once. An
// etcd that is not available is a prerequisite of pods anyway.
func (s *Scope) waitForMembers(ctx context.Context, live, set *appsv1.StatefulSet) (*metav1.Condition, error) {
	if !s.managed || live.Name == "" || workload.Made(live, set) {
		return nil, nil
	}
	name := ManagedEtcd(s.Owner.GetName())
	pods, err := s.podsOf(ctx)
	if err != nil {
		return nil, err
	}
	// A StatefulSet with a new template deletes all pods that are not ready at once.
	if pod := workload.Recovering(pods, time.Now()); pod != "" {
		why := fmt.Sprintf("the pods are replaced when pod %s is ready again, or %s after it was: EtcdCluster %s may have restarted members",
			pod, workload.RecoveryTime, name)
		held, _ := workload.Wait(s.Status.Conditions, s.Owner.GetGeneration(), "EtcdChanging", why, time.Now())
		return &held, nil
	}
	if live.Status.ReadyReplicas == 0 {
		return nil, nil
	}
	cluster := &v1alpha1.EtcdCluster{}
	// The EtcdCluster has the next step in its status before it takes the step, so an old copy is not good enough.
	if err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: name}, cluster); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	why := etcdcluster.Changing(cluster)
	if why == "" {
		return nil, nil
	}
	held, waits := workload.Wait(s.Status.Conditions, s.Owner.GetGeneration(), "EtcdChanging", fmt.Sprintf("the pods are replaced when "+
		"EtcdCluster %s restarts no members, or after %s: %s", cluster.Name, workload.MaxWait, why), time.Now())
	if !waits {
		return nil, nil
	}
	return &held, nil
}

// ManagedEtcd returns the name of the EtcdCluster of a component.
func ManagedEtcd(component string) string { return component + "-etcd" }

// managedEtcd builds the EtcdCluster of a component. By default, it has its own CA: if it trusted the issuer of the component, which also
// signs certificates of users, one misissued certificate would give access to all data.
func (s *Scope) managedEtcd(spec *v1alpha1.EtcdClusterSpec, domain string) *v1alpha1.EtcdCluster {
	cluster := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Owner.GetNamespace(), Name: ManagedEtcd(s.Owner.GetName()), Labels: s.Labels},
		Spec:       *spec.DeepCopy(),
	}
	cluster.Spec.ClusterDomain = cmp.Or(cluster.Spec.ClusterDomain, domain)
	if asked := s.Owner.GetAnnotations()[v1alpha1.RolloutAnnotation]; asked != "" {
		cluster.Annotations = map[string]string{v1alpha1.RolloutAnnotation: asked}
	}
	return cluster
}
