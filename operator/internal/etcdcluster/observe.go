package etcdcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdmember"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// most is how many members there may ever be.
const most = 5

// clusterSnapshot is a cluster as it is seen: the observation, and what it takes to act on it.
type clusterSnapshot struct {
	observation
	stateful  *appsv1.StatefulSet // nil if there is none
	leaving   bool                // the StatefulSet is being deleted, and cannot be made yet
	claims    []corev1.PersistentVolumeClaim
	live      map[int]*corev1.Pod
	clients   map[int]memberClient
	answers   map[int]answer
	alarms    []*etcdserverpb.AlarmMember
	clusterID uint64 // as the majority says

	// dataDirectory is what the volumes say about the directory in use. Empty: nothing.
	dataDirectory string
	// endRecovery says that the recovery in the status is not asked for any more, refuseRecovery that a majority answers.
	endRecovery, refuseRecovery bool
	// recheck is when to look again for what no watch reports. Zero: nothing.
	recheck time.Duration

	version     string            // that members are to run
	rolloutHeld *metav1.Condition // nil if there is no StatefulSet to compare
}

// observe returns the state of a cluster, from the API server and from the members themselves. It changes nothing, the status in memory
// included: see reportObservation.
func (s *scope) observe(ctx context.Context) (*clusterSnapshot, error) {
	seen := &clusterSnapshot{live: map[int]*corev1.Pod{}, clients: map[int]memberClient{}}
	seen.revisions = map[int]int64{}
	seen.want, seen.quota = replicas(s.cluster), quota(s.cluster)
	seen.paused = s.cluster.Spec.Maintenance != nil && s.cluster.Spec.Maintenance.Paused
	seen.known = s.cluster.Status.ClusterID != ""
	seen.ailing, seen.steady = s.ailing(), true
	for _, m := range s.cluster.Status.Members {
		if ordinal := ordinalOf(s.cluster, m.Name); !m.IsLearner {
			seen.recorded, seen.voted = max(seen.recorded, ordinal+1), append(seen.voted, ordinal)
		}
	}
	if err := s.observeObjects(ctx, seen); err != nil {
		return nil, err
	}
	if s.ask != nil {
		seen.answers = s.ask(seen.clients)
	} else {
		seen.answers = askAll(ctx, seen.clients)
	}
	s.parseAnswers(seen)
	if seen.quorum && !seen.majority() { // a leader was elected while they were asked
		maps.Copy(seen.answers, askAll(ctx, seen.silent()))
		s.parseAnswers(seen)
	}
	seen.confirmLosses(ctx)
	if err := seen.observeAlarms(ctx); err != nil {
		return nil, err
	}
	return seen, s.observeRecovery(ctx, seen)
}

func (s *scope) observeObjects(ctx context.Context, seen *clusterSnapshot) error {
	stateful := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKeyFromObject(s.cluster), stateful)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if err := s.List(ctx, claims, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(labels(s.cluster))); err != nil {
		return err
	}
	for i := range claims.Items {
		name := strings.TrimPrefix(claims.Items[i].Name, dataVolume+"-")
		seen.volumes = max(seen.volumes, ordinalOf(s.cluster, name)+1)
		if directory := claims.Items[i].Annotations[directoryAnnotation]; directory != "" && !seen.known {
			seen.dataDirectory = directory
		}
	}
	if err := s.observeRestoration(ctx, seen, claims.Items); err != nil {
		return err
	}
	seen.claims = claims.Items
	count := seen.recorded // there may be pods without it, while it is made anew
	switch {
	case err != nil:
	case !stateful.DeletionTimestamp.IsZero():
		seen.leaving = true
	default:
		seen.stateful, count = stateful, int(*stateful.Spec.Replicas)
	}
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(labels(s.cluster))); err != nil {
		return err
	}
	for i := range pods.Items {
		seen.live[ordinalOf(s.cluster, pods.Items[i].Name)] = &pods.Items[i]
	}
	for ordinal := range count {
		p, err := s.observePod(seen, ordinal)
		if err != nil {
			return err
		}
		seen.pods = append(seen.pods, p)
	}
	return nil
}

func (s *scope) observePod(seen *clusterSnapshot, ordinal int) (pod, error) {
	live := seen.live[ordinal]
	if live == nil || !live.DeletionTimestamp.IsZero() {
		seen.steady = false
		return pod{}, nil
	}
	p := pod{exists: true, notBefore: s.repairedUntil(live.Name)}
	if told := live.Annotations[etcdmember.Annotation]; told != "" {
		p.told = true
		if start, err := etcdmember.Parse([]byte(told)); err == nil && start.MemberID != "" {
			p.toldID, _ = strconv.ParseUint(start.MemberID, 16, 64)
		}
	}
	p.broken, p.stuck = condition(live, s.Now())
	p.outdated = seen.outdated(live)
	p.distrusts = p.outdated && live.Annotations[inputAnnotation] != s.authorities
	seen.steady = seen.steady && s.runs(live)
	if live.Status.PodIP != "" {
		tls, err := credentials(s.secret, s.trusted)
		if err != nil {
			return pod{}, err
		}
		seen.clients[ordinal] = memberClient{address: live.Status.PodIP, name: s.hostOf(ordinal), tls: tls}
	}
	return p, nil
}

// patience is how long members may take to reach each other.
const patience = time.Minute

// ailing reports whether conditions have said for a while that there is no majority, or that a member is missing.
func (s *scope) ailing() bool {
	for _, name := range []string{v1alpha1.ConditionQuorumLost, v1alpha1.ConditionDegraded} {
		c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, name)
		if c != nil && c.Status == metav1.ConditionTrue && s.Now().Sub(c.LastTransitionTime.Time) > patience {
			return true
		}
	}
	return false
}

// runs reports whether the process of a pod has run for a while.
func (s *scope) runs(live *corev1.Pod) bool {
	for _, c := range live.Status.ContainerStatuses {
		if c.Name == containerName {
			return c.State.Running != nil && s.Now().Sub(c.State.Running.StartedAt.Time) > patience
		}
	}
	return false
}

// outdated reports whether a pod is made otherwise than the StatefulSet would make it now, as far as that is known.
func (seen *clusterSnapshot) outdated(live *corev1.Pod) bool {
	set := seen.stateful
	return set != nil && set.Status.ObservedGeneration >= set.Generation && set.Status.UpdateRevision != "" &&
		live.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision
}

// crashes is after how many restarts a process that does not run counts as one that never will.
const crashes = 4

// condition returns whether the process of a pod ends again and again, and whether it cannot be started.
func condition(p *corev1.Pod, now time.Time) (broken, stuck bool) {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != containerName || c.Ready {
			continue
		}
		if waiting := c.State.Waiting; waiting != nil {
			crashed := waiting.Reason == "CrashLoopBackOff"
			broken = crashed && workload.Crashes(c, crashes, now)
			stuck = !crashed && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing"
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			stuck = true
		}
	}
	return broken, stuck
}

// trouble returns what keeps members from running.
func (seen *clusterSnapshot) trouble(now time.Time) workload.Trouble {
	var pods []corev1.Pod
	for ordinal := range seen.pods {
		if live := seen.live[ordinal]; live != nil {
			pods = append(pods, *live)
		}
	}
	return workload.FindTrouble(pods, workload.CorrectImage, "", now)
}

// survivors says who has which revision, for whoever has to choose one.
func (s *scope) survivors(seen *clusterSnapshot) string {
	text := ""
	for ordinal := range seen.pods {
		if revision, answers := seen.revisions[ordinal]; answers {
			text += fmt.Sprintf("; %s has revision %d", memberName(s.cluster, ordinal), revision)
		}
	}
	return text
}

func askAll(ctx context.Context, clients map[int]memberClient) map[int]answer {
	answers := make(map[int]answer, len(clients))
	var lock sync.Mutex
	var asked sync.WaitGroup
	for ordinal, c := range clients {
		asked.Go(func() {
			a := c.ask(ctx)
			lock.Lock()
			defer lock.Unlock()
			answers[ordinal] = a
		})
	}
	asked.Wait()
	return answers
}

// silent returns the clients of voters that are not healthy.
func (seen *clusterSnapshot) silent() map[int]memberClient {
	clients := map[int]memberClient{}
	for _, m := range seen.voters() {
		if c, ok := seen.clients[m.ordinal]; ok && !m.healthy {
			clients[m.ordinal] = c
		}
	}
	return clients
}

// parseAnswers fills in the members from the answers.
func (s *scope) parseAnswers(seen *clusterSnapshot) {
	seen.members = nil
	var list *clientv3.MemberListResponse
	var index uint64
	for ordinal, a := range seen.answers {
		seen.pods[ordinal].empty = a.empty
		if a.list != nil {
			list = a.list
		}
		if a.status != nil {
			index = max(index, a.status.RaftIndex)
			seen.revisions[ordinal] = a.status.Header.Revision
		}
	}
	if list == nil {
		return
	}
	seen.quorum, seen.clusterID = true, list.Header.ClusterId
	seen.another = seen.known && s.cluster.Status.ClusterID != identity(list.Header.ClusterId)
	for _, listed := range list.Members {
		m := member{id: listed.ID, name: listed.Name, ordinal: s.ordinalAt(listed.PeerURLs), learner: listed.IsLearner,
			started: listed.Name != ""}
		if a := seen.answers[m.ordinal]; a.status != nil && a.status.Header.MemberId == m.id {
			m.healthy = a.status.Leader != 0 && (a.list != nil || m.learner)
			m.leader = a.status.Leader == m.id
			m.version, m.size, m.inUse = a.status.Version, a.status.DbSize, a.status.DbSizeInUse
			m.lag = int64(index - a.status.RaftIndex)
		}
		seen.members = append(seen.members, m)
	}
	slices.SortFunc(seen.members, func(a, b member) int { return a.ordinal - b.ordinal })
}

// confirmLosses asks again who waited with an empty volume, and has started as the others say: it may have done so in between.
// Whoever waits after it has started has lost its volume.
func (seen *clusterSnapshot) confirmLosses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, m := range seen.members {
		if m.started && seen.pod(m.ordinal).empty {
			seen.pods[m.ordinal].empty, _ = seen.clients[m.ordinal].find(ctx)
		}
	}
}

// observeAlarms lists alarms if a member reports one, because listing costs a write.
func (seen *clusterSnapshot) observeAlarms(ctx context.Context) error {
	if !slices.ContainsFunc(seen.members, func(m member) bool {
		a := seen.answers[m.ordinal]
		return a.status != nil && alarmed(a.status)
	}) {
		return nil
	}
	return seen.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
		response, err := c.AlarmList(ctx)
		if err != nil {
			return fmt.Errorf("alarms: %w", err)
		}
		seen.alarms = response.Alarms
		for _, alarm := range response.Alarms {
			at := slices.IndexFunc(seen.members, func(m member) bool { return m.id == alarm.MemberID })
			switch {
			case at < 0:
				seen.goneAlarm = true
			case alarm.Alarm == etcdserverpb.AlarmType_CORRUPT:
				seen.members[at].corrupt = true
			case alarm.Alarm == etcdserverpb.AlarmType_NOSPACE:
				seen.noSpace = true
			}
		}
		return nil
	})
}

// change lets one of the members that have a majority behind them do something.
func (seen *clusterSnapshot) change(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	for _, m := range seen.voters() {
		if m.healthy && !m.corrupt {
			return seen.clients[m.ordinal].change(ctx, changeTimeout, do)
		}
	}
	return errNoMemberAnswers
}

func (s *scope) ordinalAt(urls []string) int {
	for ordinal := range most {
		if slices.Contains(urls, s.peerURL(ordinal)) {
			return ordinal
		}
	}
	return -1
}

// ordinalOf returns the number of a pod, or -1 if it is none of the cluster's.
func ordinalOf(cluster *v1alpha1.EtcdCluster, name string) int {
	number, ok := strings.CutPrefix(name, cluster.Name+"-")
	ordinal, err := strconv.Atoi(number)
	if !ok || err != nil || ordinal < 0 {
		return -1
	}
	return ordinal
}

// templateSize returns how large the StatefulSet makes volumes.
func templateSize(seen *clusterSnapshot) *resource.Quantity {
	return seen.stateful.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage()
}

func identity(id uint64) string { return strconv.FormatUint(id, 16) }
