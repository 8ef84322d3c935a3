package installations

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Installation is the state of an installation, as printed in JSON and YAML.
type Installation struct {
	Namespace string `json:"namespace"`
	// Name is that of the RootShard.
	Name string `json:"name"`
	// Ready reports whether all components are.
	Ready      bool        `json:"ready"`
	URL        string      `json:"url,omitempty"`
	Components []Component `json:"components"`
	Members    []Member    `json:"etcdMembers"`
	Backups    []Backup    `json:"backups"`
	Waiting    []Waiting   `json:"waiting"`
}

// Component is an object of the operator that runs in pods.
type Component struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Pods is the number of ready pods and of all pods, such as 2/2.
	Pods string `json:"pods,omitempty"`
	// Expires is when the first of its certificates expires.
	Expires *metav1.Time   `json:"certificatesExpire,omitempty"`
	Phase   v1alpha1.Phase `json:"phase,omitempty"`
	Ready   bool           `json:"ready"`
	// LogicalClusters is the number of logical clusters of a further shard.
	LogicalClusters *int64 `json:"logicalClusters,omitempty"`
}

// Member is a member of an etcd cluster.
type Member struct {
	Cluster string `json:"cluster"`
	v1alpha1.EtcdMemberStatus
}

// Backup is the state of the snapshots of an etcd cluster.
type Backup struct {
	Cluster string `json:"cluster"`
	// Last is when the last snapshot was stored, Schedule the schedule of the next ones. Both may be missing.
	Last     *metav1.Time `json:"last,omitempty"`
	Schedule string       `json:"schedule,omitempty"`
}

// Waiting is what an object waits for. The message has the next step.
type Waiting struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// Summarize returns the state of the installation of each RootShard, or of the one with a name.
func Summarize(namespace, name string, o *Objects) []Installation {
	all := []Installation{}
	for i := range o.RootShards {
		if rs := &o.RootShards[i]; name == "" || rs.Name == name {
			all = append(all, summarize(namespace, rs, o))
		}
	}
	return all
}

func summarize(namespace string, rs *v1alpha1.RootShard, o *Objects) Installation {
	in := Installation{Namespace: namespace, Name: rs.Name, URL: rs.Status.URL, Members: []Member{}, Backups: []Backup{}, Waiting: []Waiting{}}
	for i := range o.CacheServers {
		if c := &o.CacheServers[i]; cacheOf(rs) == c.Name {
			in.add("CacheServer", c.Name, &c.Status.ComponentStatus)
		}
	}
	in.add("RootShard", rs.Name, &rs.Status.ComponentStatus)
	shards := map[string]bool{}
	for i := range o.Shards {
		if s := &o.Shards[i]; refersTo(s.Spec.RootShard, rs) {
			shards[s.Name] = true
			in.add("Shard", s.Name, &s.Status.ComponentStatus)
			in.Components[len(in.Components)-1].LogicalClusters = s.Status.LogicalClusters
		}
	}
	for i := range o.VirtualWorkspaces {
		v := &o.VirtualWorkspaces[i]
		root, shard := v.Spec.Target.RootShardRef, v.Spec.Target.ShardRef
		if root != nil && root.Name == rs.Name || shard != nil && shards[shard.Name] {
			in.add("VirtualWorkspace", v.Name, &v.Status)
		}
	}
	var proxies []string
	for i := range o.FrontProxies {
		if f := &o.FrontProxies[i]; refersTo(f.Spec.RootShard, rs) {
			in.add("FrontProxy", f.Name, &f.Status)
			proxies = append(proxies, f.Status.URL)
		}
	}
	in.URL = cmp.Or(append(proxies, in.URL)...)
	for i := range o.EtcdClusters {
		if e := &o.EtcdClusters[i]; in.owns(e) {
			in.addEtcd(e, o)
		}
	}
	in.Ready = !slices.ContainsFunc(in.Components, func(c Component) bool { return !c.Ready })
	return in
}

// Astray returns the components that belong to no installation of their namespace, with the reason.
func Astray(o *Objects) []Waiting {
	roots, shards := map[string]bool{}, map[string]bool{}
	for i := range o.RootShards {
		roots[o.RootShards[i].Name] = true
	}
	all := []Waiting{}
	add := func(kind, name, field string, ref *v1alpha1.LocalReference, known map[string]bool, refers string) {
		switch {
		case ref == nil:
			all = append(all, Waiting{kind, name, v1alpha1.ConditionReferenceValid, "NoReference", field + " is empty: set it"})
		case !known[ref.Name]:
			all = append(all, Waiting{kind, name, v1alpha1.ConditionReferenceValid, "ReferenceNotFound",
				fmt.Sprintf("%s: there is no %s %s in this namespace: create it, or correct the name", field, refers, ref.Name)})
		}
	}
	for i := range o.Shards {
		shards[o.Shards[i].Name] = true
		add("Shard", o.Shards[i].Name, "spec.rootShard.ref", o.Shards[i].Spec.RootShard.Reference, roots, "RootShard")
	}
	for i := range o.VirtualWorkspaces {
		v := &o.VirtualWorkspaces[i]
		if target := v.Spec.Target; target.RootShardRef != nil {
			add("VirtualWorkspace", v.Name, "spec.target.rootShardRef", target.RootShardRef, roots, "RootShard")
		} else {
			add("VirtualWorkspace", v.Name, "spec.target.shardRef", target.ShardRef, shards, "Shard")
		}
	}
	for i := range o.FrontProxies {
		add("FrontProxy", o.FrontProxies[i].Name, "spec.rootShard.ref", o.FrontProxies[i].Spec.RootShard.Reference, roots, "RootShard")
	}
	return all
}

func cacheOf(rs *v1alpha1.RootShard) string {
	if rs.Spec.Cache == nil || rs.Spec.Cache.Reference == nil {
		return ""
	}
	return rs.Spec.Cache.Reference.Name
}

func refersTo(config v1alpha1.RootShardConfig, rs *v1alpha1.RootShard) bool {
	return config.Reference != nil && config.Reference.Name == rs.Name
}

// owns reports whether a component of the installation controls an etcd.
func (in *Installation) owns(e *v1alpha1.EtcdCluster) bool {
	owner := metav1.GetControllerOf(e)
	return owner != nil && slices.ContainsFunc(in.Components, func(c Component) bool { return c.Kind == owner.Kind && c.Name == owner.Name })
}

func (in *Installation) add(kind, name string, status *v1alpha1.ComponentStatus) {
	in.Components = append(in.Components, Component{
		Kind: kind, Name: name, Version: status.Version, Pods: status.Pods, Phase: status.Phase, Expires: earliest(status.Certificates),
		Ready: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady),
	})
	in.wait(kind, name, status.Conditions)
}

func (in *Installation) addEtcd(e *v1alpha1.EtcdCluster, o *Objects) {
	in.Components = append(in.Components, Component{
		Kind: "EtcdCluster", Name: e.Name, Version: e.Status.CurrentVersion, Pods: e.Status.ReadyMembers, Phase: e.Status.Phase,
		Ready: meta.IsStatusConditionTrue(e.Status.Conditions, v1alpha1.ConditionReady),
	})
	in.wait("EtcdCluster", e.Name, e.Status.Conditions)
	for _, m := range e.Status.Members {
		in.Members = append(in.Members, Member{e.Name, m})
	}
	b := Backup{Cluster: e.Name}
	for i := range o.Backups {
		s := &o.Backups[i]
		if s.Spec.Cluster == e.Name && s.Status.Snapshot != nil {
			b.stored(s.Status.CompletedAt)
		}
	}
	for i := range o.Schedules {
		s := &o.Schedules[i]
		if s.Spec.Cluster != e.Name {
			continue
		}
		if b.Schedule = s.Spec.Schedule; s.Spec.Suspend {
			b.Schedule += " (suspended)"
		}
		b.stored(s.Status.LastSuccess)
		in.wait("EtcdBackupSchedule", s.Name, s.Status.Conditions)
	}
	in.Backups = append(in.Backups, b)
	if b.Last == nil && b.Schedule == "" {
		in.Waiting = append(in.Waiting, Waiting{"EtcdCluster", e.Name, "", "NoBackup",
			"there is no snapshot of this etcd, and no schedule: create an EtcdBackupSchedule"})
	}
}

// stored records that a snapshot was stored at a time.
func (b *Backup) stored(at *metav1.Time) {
	if at != nil && (b.Last == nil || b.Last.Before(at)) {
		b.Last = at
	}
}

// earliest returns when the first certificate expires.
func earliest(certificates []v1alpha1.CertificateStatus) (first *metav1.Time) {
	for _, c := range certificates {
		if c.NotAfter != nil && (first == nil || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	return first
}

// warnings are the conditions that require attention although the object is ready, by the status that does.
var warnings = map[string]metav1.ConditionStatus{
	v1alpha1.ConditionCertificatesExpiring: metav1.ConditionTrue,
	v1alpha1.ConditionEtcdShared:           metav1.ConditionTrue,
	v1alpha1.ConditionRolloutHeld:          metav1.ConditionTrue,
	v1alpha1.ConditionStepFailed:           metav1.ConditionTrue,
	v1alpha1.ConditionQuorumLost:           metav1.ConditionTrue,
	v1alpha1.ConditionDegraded:             metav1.ConditionTrue,
	v1alpha1.ConditionBackupHealthy:        metav1.ConditionFalse,
}

// wait adds what an object waits for: why it is not ready, and its warnings.
func (in *Installation) wait(kind, name string, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil {
		in.Waiting = append(in.Waiting, Waiting{kind, name, v1alpha1.ConditionReady, "Unknown",
			"the operator has not reported its state: check that the operator runs and watches this namespace"})
	}
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady && c.Status != metav1.ConditionTrue || warnings[c.Type] == c.Status ||
			c.Type == v1alpha1.ConditionDrained { // when the shard is empty, it can be deleted
			in.Waiting = append(in.Waiting, Waiting{kind, name, c.Type, c.Reason, c.Message})
		}
	}
}

// State returns the state of a component in a word.
func (c Component) State() string {
	switch {
	case c.Ready:
		return "Ready"
	case c.Phase != "":
		return string(c.Phase)
	}
	return "Unknown"
}

// Role returns what a member of an etcd does.
func (m Member) Role() string {
	switch {
	case m.IsLeader:
		return "leader"
	case m.IsLearner:
		return "learner"
	}
	return "follower"
}

// Expiry returns a time and how far away it is.
func Expiry(at *metav1.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	days := int(at.Sub(now).Hours() / 24)
	if at.Time.Before(now) {
		return at.UTC().Format(time.DateOnly) + " (expired)"
	}
	return fmt.Sprintf("%s (%d days)", at.UTC().Format(time.DateOnly), days)
}
