package sharding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// compareParent checks what users see of the workspaces after the shard of their parent was restored to the state of then:
//
//   - A workspace that was created after the snapshot is gone. Its logical cluster on another shard is an orphan.
//   - A workspace that has moved to another shard after the snapshot is served there, once its record is repaired.
//   - A workspace that was deleted after the snapshot, or has moved to the restored shard, is lost if the snapshot records another shard. If
//     its content was on the restored shard too, it is as it was.
func (m *model) compareParent(then, now map[string]tenancyv1alpha1.Workspace) {
	m.handleFindings(now)
	for _, r := range m.races {
		was, is := then[r.name], now[r.name]
		cluster, moved := was.Spec.Cluster, was.Spec.Cluster == is.Spec.Cluster && is.Annotations[tenancyv1alpha1.ShardAnnotation] != m.holder.Name
		served := cluster != "" && (was.Annotations[tenancyv1alpha1.ShardAnnotation] == m.holder.Name || moved)
		for proxy := range m.i.Proxies {
			m.until("find out about "+r.name, func(ctx context.Context) error {
				got, err := m.client(proxy, r).CoreV1().ConfigMaps("default").Get(ctx, sign, metav1.GetOptions{})
				if served && err == nil && got.Data["cluster"] == cluster || !served && apierrors.IsForbidden(err) {
					return nil
				}
				return fmt.Errorf("%s, which was %q and then %q, gets %v, %w", r.name, placed(was), placed(is), got.Data, err)
			})
		}
		m.count(cluster, is.Spec.Cluster, served)
		if r.exists() {
			r.next("")
		}
		if served {
			r.next(cluster)
		}
	}
}

// count counts what became of the logical clusters of a workspace before and after.
func (m *model) count(was, is string, served bool) {
	switch {
	case was != "" && !served || is != "" && is != was:
		m.lost++
	case served && is != was:
		m.returned++
	}
}

// handleFindings does what the documentation says about what kubectl kcp check finds, until it finds nothing.
func (m *model) handleFindings(now map[string]tenancyv1alpha1.Workspace) {
	m.until("find nothing after a restoration", func(ctx context.Context) error {
		found := check(m.t, m.i)
		for _, f := range found {
			switch f.Kind {
			case "Behind":
				plugin(m.t, m.i).Try(m.t, "kcp", "check", "--repair")
			case "Lost":
				_, name, _ := strings.Cut(f.Workspace, "|")
				_ = m.at(0, m.parent).Dynamic(m.t, kcptest.Alice).Resource(kcptest.Workspaces).Delete(ctx, name, metav1.DeleteOptions{})
			case "Orphaned":
				plugin(m.t, m.i).Try(m.t, "kcp", "orphans", "--delete="+f.ClusterUID, "--yes")
			case "Doubled", "Conflict": // the copy with the lower epoch is the former one
				m.deleteCopy(ctx, f)
			}
		}
		if len(found) > 0 {
			return fmt.Errorf("found %+v; the workspaces were %v", found, now)
		}
		return nil
	})
}

// deleteCopy deletes a copy of a logical cluster at its shard.
func (m *model) deleteCopy(ctx context.Context, f finding) {
	i := slices.IndexFunc(m.i.Shards, func(s *sharded.Process) bool { return s.Name == f.Shard })
	if i < 0 {
		return
	}
	uid := types.UID(f.ClusterUID)
	_ = m.i.Shards[i].Server().Named(f.Cluster).Dynamic(m.t, kcptest.Masters).Resource(kcptest.LogicalClusters).Delete(ctx,
		corev1alpha1.LogicalClusterName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}
