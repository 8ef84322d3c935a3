package installation

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// etcd is an etcd that the operator runs for a component, with the version in the spec of the component.
type etcd struct {
	name, version string
	cluster       *v1alpha1.EtcdCluster
	schedules     []v1alpha1.EtcdBackupSchedule
	backups       []v1alpha1.EtcdBackup
}

// upgraded returns an error unless an etcd has the version in the spec, and all its members are healthy.
func (e etcd) upgraded() error {
	status := e.cluster.Status
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	why := ""
	switch {
	case ready == nil || ready.ObservedGeneration < e.cluster.Generation:
		why = "it has no current status yet"
	case ready.Status != metav1.ConditionTrue:
		why = ready.Message
	case e.version != "" && e.version != status.CurrentVersion:
		why = "it runs the version " + status.CurrentVersion + ", not " + e.version
	default:
		return nil
	}
	return conditions.Unwatched(turn,
		conditions.Wait("WaitingForEtcd", "keeping the former image until EtcdCluster %s is ready: %s", e.name, why))
}

// saved returns an error if an etcd has schedules of snapshots, and no snapshot that is good enough for an upgrade: the last one failed, or
// is older than a maximum, unless that is zero.
func (e etcd) saved(maximum time.Duration, now time.Time) error {
	if !slices.ContainsFunc(e.schedules, func(s v1alpha1.EtcdBackupSchedule) bool { return !s.Spec.Suspend }) {
		return nil
	}
	last := e.lastSnapshot()
	healthy := meta.FindStatusCondition(e.cluster.Status.Conditions, v1alpha1.ConditionBackupHealthy)
	why := ""
	switch {
	case healthy != nil && healthy.Status == metav1.ConditionFalse && !last.After(healthy.LastTransitionTime.Time):
		why = healthy.Message
	case maximum == 0 || now.Sub(last) <= maximum:
		return nil
	case last.IsZero():
		why = "there is none yet"
	default:
		why = "the last one is of " + last.UTC().Format(time.RFC3339) + ", and spec.upgrade.maxBackupAge is " + maximum.String()
	}
	return conditions.Unwatched(turn, conditions.Wait("BackupTooOld", "keeping the former image until EtcdCluster %s has a current snapshot: "+
		"%s: create an EtcdBackup, or suspend the EtcdBackupSchedule to upgrade without a snapshot", e.name, why))
}

// lastSnapshot returns when the last snapshot was stored, by a schedule or otherwise, or zero.
func (e etcd) lastSnapshot() time.Time {
	var last time.Time
	for _, schedule := range e.schedules {
		if at := schedule.Status.LastSuccess; at != nil && at.After(last) {
			last = at.Time
		}
	}
	for _, backup := range e.backups {
		if at := backup.Status.CompletedAt; at != nil && backup.Status.Phase == v1alpha1.PhaseReady && at.After(last) {
			last = at.Time
		}
	}
	return last
}

// Preflight returns nil if the upgrade of an installation to another image may begin, or what it waits for: every etcd that the operator
// runs for it has its version and is healthy, and has a current snapshot if snapshots are scheduled; all Shards are available; no keys are
// being rotated. The root shard does not wait for itself, because another image may be its repair.
func Preflight(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, now time.Time) error {
	all, err := etcds(ctx, c, rs.Namespace, func(object client.Object) bool { return belongs(object, rs) })
	if err != nil {
		return err
	}
	maximum := time.Duration(0)
	if rs.Spec.Upgrade != nil && rs.Spec.Upgrade.MaxBackupAge != nil {
		maximum = rs.Spec.Upgrade.MaxBackupAge.Duration.Duration
	}
	for _, e := range all {
		if err := cmp.Or(e.upgraded(), e.saved(maximum, now), rotated("EtcdCluster", e.name, e.cluster.Status.Conditions)); err != nil {
			return err
		}
	}
	return shardsReady(ctx, c, rs)
}

// shardsReady returns an error unless all Shards of an installation are available, and no keys of its shards and its cache server are
// being rotated. Shards that have not become ready with the image of the root shard do not count: another image may be their repair. Nor
// does anything if a user allows the version.
func shardsReady(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard) error {
	if i := rs.Spec.Image; i != nil && i.Tag != "" && i.Tag == rs.Annotations[v1alpha1.AllowVersionAnnotation] {
		return nil
	}
	shards, err := shardsBefore(ctx, c, rs, rs)
	if err != nil {
		return err
	}
	for _, p := range shards {
		if p.status.Image != component.Image(p.spec.Image, rs.Status.Image) {
			continue
		}
		if err := cmp.Or(p.available(), rotated(p.kind, p.name, p.status.Conditions)); err != nil {
			return err
		}
	}
	server, err := cacheOf(ctx, c, rs)
	if server != nil {
		err = rotated("CacheServer", server.Name, server.Status.Conditions)
	}
	return cmp.Or(err, rotated(rootKind, rs.Name, rs.Status.Conditions))
}

// available returns an error unless the part is available, or turned off.
func (p part) available() error {
	available := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionAvailable)
	why := ""
	switch {
	case available == nil || available.ObservedGeneration < p.generation:
		why = "it has no current status yet"
	case available.Status != metav1.ConditionTrue && available.Reason != conditions.ScaledToZero:
		why = available.Message
	default:
		return nil
	}
	return conditions.Unwatched(turn,
		conditions.Wait("WaitingForShard", "keeping the former image until %s %s is available: %s", p.kind, p.name, why))
}

// rotated returns an error while the keys of an object are being rotated. A rotation is complete when nothing needs the former keys, though
// they are accepted until a user deletes them.
func rotated(kind, name string, all []metav1.Condition) error {
	c := meta.FindStatusCondition(all, v1alpha1.ConditionRotating)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason == v1alpha1.RotatingRenewed {
		return nil
	}
	return conditions.Unwatched(turn, conditions.Wait("WaitingForRotation",
		"keeping the former image until the rotation of keys of %s %s is complete: %s", kind, name, c.Message))
}

// ownEtcd returns an error unless the etcd that the operator runs for a component has its version and is healthy.
func ownEtcd(ctx context.Context, c client.Reader, of client.Object) error {
	all, err := etcds(ctx, c, of.GetNamespace(), func(object client.Object) bool { return object.GetUID() == of.GetUID() })
	for _, e := range all {
		err = cmp.Or(err, e.upgraded())
	}
	return err
}

// etcds returns the etcds that the operator runs for the selected components. Those that do not exist yet are left out: their components
// wait for them.
func etcds(ctx context.Context, c client.Reader, namespace string, selected func(client.Object) bool) ([]etcd, error) {
	stored, err := stores(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	stored = slices.DeleteFunc(stored, func(s store) bool { return s.config.Managed == nil || !selected(s.object) })
	if len(stored) == 0 {
		return nil, nil
	}
	schedules, backups := &v1alpha1.EtcdBackupScheduleList{}, &v1alpha1.EtcdBackupList{}
	for _, list := range []client.ObjectList{schedules, backups} {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	var all []etcd
	for _, s := range stored {
		e := etcd{name: component.ManagedEtcd(s.object.GetName()), version: s.config.Managed.Version, cluster: &v1alpha1.EtcdCluster{}}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.name}, e.cluster)
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, schedule := range schedules.Items {
			if schedule.Spec.Cluster == e.name {
				e.schedules = append(e.schedules, schedule)
			}
		}
		for _, backup := range backups.Items {
			if backup.Spec.Cluster == e.name {
				e.backups = append(e.backups, backup)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// belongs reports whether a component with data is part of an installation.
func belongs(object client.Object, rs *v1alpha1.RootShard) bool {
	switch o := object.(type) {
	case *v1alpha1.RootShard:
		return o.Name == rs.Name
	case *v1alpha1.Shard:
		return Refers(o.Spec.RootShard, rs) && o.DeletionTimestamp.IsZero()
	case *v1alpha1.CacheServer:
		return o.Name == CacheName(rs.Spec.Cache)
	}
	return false
}
