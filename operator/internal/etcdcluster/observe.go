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
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/etcdmember"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// maxMembers is the largest number of members of a cluster.
const maxMembers = 5

// clusterSnapshot is the observed state of a cluster: the observation for decisions, and the objects and clients for steps.
type clusterSnapshot struct {
	observation
	stateful    *appsv1.StatefulSet // nil if it does not exist
	terminating bool                // the StatefulSet is being deleted, and cannot be created yet
	claims      []corev1.PersistentVolumeClaim
	live        map[int]*corev1.Pod
	clients     map[int]memberClient
	answers     map[int]answer
	alarms      []*etcdserverpb.AlarmMember
	clusterID   uint64 // as a majority of the members reports it

	// dataDirectory is the directory in use, as annotated at the volumes. It is empty if they have no annotation.
	dataDirectory  string
	endRecovery    bool // the spec no longer requests the recovery in the status
	refuseRecovery bool // the spec requests a recovery, and a majority answers
	// recheck is when to reconcile again for changes without a watch. Zero means never.
	recheck time.Duration

	version     string            // desired version of members
	rolloutHeld *metav1.Condition // nil without a StatefulSet
}

// observe returns the state of a cluster, from the API server and from the members. It changes nothing, not even the status in memory:
// reportObservation does that.
func (s *scope) observe(ctx context.Context) (*clusterSnapshot, error) {
	observed := &clusterSnapshot{live: map[int]*corev1.Pod{}, clients: map[int]memberClient{}}
	observed.revisions = map[int]int64{}
	observed.want, observed.quota = replicas(s.cluster), quota(s.cluster)
	observed.paused = s.cluster.Spec.Maintenance != nil && s.cluster.Spec.Maintenance.Paused
	observed.initialized = s.cluster.Status.ClusterID != ""
	observed.unhealthyForLong, observed.allStable = s.unhealthyForLong(), true
	for _, m := range s.cluster.Status.Members {
		if ordinal := ordinalOf(s.cluster, m.Name); !m.IsLearner {
			observed.recorded, observed.recordedVoters = max(observed.recorded, ordinal+1), append(observed.recordedVoters, ordinal)
		}
	}
	if err := s.observeObjects(ctx, observed); err != nil {
		return nil, err
	}
	if s.queryMembers != nil {
		observed.answers = s.queryMembers(observed.clients)
	} else {
		observed.answers = queryAll(ctx, observed.clients)
	}
	s.parseAnswers(observed)
	if observed.quorum && !observed.healthyMajority() { // a leader was elected during the queries
		maps.Copy(observed.answers, queryAll(ctx, observed.unhealthyClients()))
		s.parseAnswers(observed)
	}
	observed.confirmEmptyVolumes(ctx)
	if err := observed.observeAlarms(ctx); err != nil {
		return nil, err
	}
	return observed, s.observeRecovery(ctx, observed)
}

func (s *scope) observeObjects(ctx context.Context, observed *clusterSnapshot) error {
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
		observed.volumes = max(observed.volumes, ordinalOf(s.cluster, name)+1)
		if directory := claims.Items[i].Annotations[directoryAnnotation]; directory != "" && !observed.initialized {
			observed.dataDirectory = directory
		}
	}
	if err := s.observeRestoration(ctx, observed, claims.Items); err != nil {
		return err
	}
	observed.claims = claims.Items
	count := observed.recorded // pods can exist without a StatefulSet, while it is replaced
	switch {
	case err != nil:
	case !stateful.DeletionTimestamp.IsZero():
		observed.terminating = true
	default:
		observed.stateful, count = stateful, int(*stateful.Spec.Replicas)
	}
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(labels(s.cluster))); err != nil {
		return err
	}
	for i := range pods.Items {
		observed.live[ordinalOf(s.cluster, pods.Items[i].Name)] = &pods.Items[i]
	}
	if observed.stateful == nil {
		s.observeFormer(observed)
	}
	for ordinal := range count {
		p, err := s.observePod(observed, ordinal)
		if err != nil {
			return err
		}
		observed.pods = append(observed.pods, p)
	}
	return nil
}

// observeFormer looks for a pod that must be gone before the StatefulSet is created.
func (s *scope) observeFormer(observed *clusterSnapshot) {
	var members []corev1.Pod
	for ordinal, live := range observed.live {
		if ordinal >= 0 {
			members = append(members, *live)
		}
	}
	slices.SortFunc(members, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if pod, again := workload.Former(s.cluster, members, s.Now()); pod != nil {
		observed.former, s.after = pod.Name, conditions.Earliest(s.after, again)
	}
}

func (s *scope) observePod(observed *clusterSnapshot, ordinal int) (pod, error) {
	live := observed.live[ordinal]
	if live == nil || !live.DeletionTimestamp.IsZero() {
		observed.allStable = false
		return pod{}, nil
	}
	p := pod{exists: true, notBefore: s.repairedUntil(live.Name)}
	if text := live.Annotations[etcdmember.Annotation]; text != "" {
		p.hasStart = true
		if start, err := etcdmember.Parse([]byte(text)); err == nil && start.MemberID != "" {
			p.startID, _ = strconv.ParseUint(start.MemberID, 16, 64)
		}
	}
	p.crashing, p.unstartable = podState(live, s.Now())
	p.outdated = observed.outdated(live)
	p.outdatedTrust = p.outdated && live.Annotations[inputAnnotation] != s.authorities
	observed.allStable = observed.allStable && s.isStable(live)
	if live.Status.PodIP != "" {
		tls, err := credentials(s.secret, s.trusted)
		if err != nil {
			return pod{}, err
		}
		observed.clients[ordinal] = memberClient{address: live.Status.PodIP, name: s.hostOf(ordinal), tls: tls}
	}
	return p, nil
}

// stabilizationTime is how long members may take to connect to each other.
const stabilizationTime = time.Minute

// unhealthyForLong reports whether QuorumLost or Degraded has been True for longer than stabilizationTime.
func (s *scope) unhealthyForLong() bool {
	for _, name := range []string{v1alpha1.ConditionQuorumLost, v1alpha1.ConditionDegraded} {
		c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, name)
		if c != nil && c.Status == metav1.ConditionTrue && s.Now().Sub(c.LastTransitionTime.Time) > stabilizationTime {
			return true
		}
	}
	return false
}

// isStable reports whether the process of a pod has run for longer than stabilizationTime.
func (s *scope) isStable(live *corev1.Pod) bool {
	for _, c := range live.Status.ContainerStatuses {
		if c.Name == containerName {
			return c.State.Running != nil && s.Now().Sub(c.State.Running.StartedAt.Time) > stabilizationTime
		}
	}
	return false
}

// outdated reports whether the template of a pod differs from the one in the StatefulSet, if the StatefulSet is up to date.
func (observed *clusterSnapshot) outdated(live *corev1.Pod) bool {
	set := observed.stateful
	return set != nil && set.Status.ObservedGeneration >= set.Generation && set.Status.UpdateRevision != "" &&
		live.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision
}

// crashes is the number of restarts after which a process counts as crashing.
const crashes = 4

// podState returns whether the process of a pod crashes repeatedly, and whether it cannot be started.
func podState(p *corev1.Pod, now time.Time) (crashing, unstartable bool) {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != containerName || c.Ready {
			continue
		}
		if waiting := c.State.Waiting; waiting != nil {
			crashed := waiting.Reason == "CrashLoopBackOff"
			crashing = crashed && workload.Crashes(c, crashes, now)
			unstartable = !crashed && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing"
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			unstartable = true
		}
	}
	return crashing, unstartable
}

// trouble returns why members do not run.
func (observed *clusterSnapshot) trouble(now time.Time) workload.Trouble {
	var pods []corev1.Pod
	for ordinal := range observed.pods {
		if live := observed.live[ordinal]; live != nil {
			pods = append(pods, *live)
		}
	}
	return workload.FindTrouble(pods, workload.CorrectImage, "", now)
}

// describeRevisions lists the revision of each member that answers, for the choice of a survivor.
func (s *scope) describeRevisions(observed *clusterSnapshot) string {
	text := ""
	for ordinal := range observed.pods {
		if revision, answers := observed.revisions[ordinal]; answers {
			text += fmt.Sprintf("; %s has revision %d", memberName(s.cluster, ordinal), revision)
		}
	}
	return text
}

func queryAll(ctx context.Context, clients map[int]memberClient) map[int]answer {
	answers := make(map[int]answer, len(clients))
	var lock sync.Mutex
	var queries sync.WaitGroup
	for ordinal, c := range clients {
		queries.Go(func() {
			a := c.query(ctx)
			lock.Lock()
			defer lock.Unlock()
			answers[ordinal] = a
		})
	}
	queries.Wait()
	return answers
}

// unhealthyClients returns the clients of voters that are not healthy.
func (observed *clusterSnapshot) unhealthyClients() map[int]memberClient {
	clients := map[int]memberClient{}
	for _, m := range observed.voters() {
		if c, ok := observed.clients[m.ordinal]; ok && !m.healthy {
			clients[m.ordinal] = c
		}
	}
	return clients
}

// parseAnswers derives the members from the answers.
func (s *scope) parseAnswers(observed *clusterSnapshot) {
	observed.members = nil
	var list *clientv3.MemberListResponse
	var index uint64
	for ordinal, a := range observed.answers {
		observed.pods[ordinal].empty = a.empty
		if a.list != nil {
			list = a.list
		}
		if a.status != nil {
			index = max(index, a.status.RaftIndex)
			observed.revisions[ordinal] = a.status.Header.Revision
		}
	}
	if list == nil {
		return
	}
	observed.quorum, observed.clusterID = true, list.Header.ClusterId
	observed.otherCluster = observed.initialized && s.cluster.Status.ClusterID != identity(list.Header.ClusterId)
	for _, listed := range list.Members {
		m := member{id: listed.ID, name: listed.Name, ordinal: s.ordinalAt(listed.PeerURLs), learner: listed.IsLearner,
			started: listed.Name != ""}
		if a := observed.answers[m.ordinal]; a.status != nil && a.status.Header.MemberId == m.id {
			m.healthy = a.status.Leader != 0 && (a.list != nil || m.learner)
			m.leader = a.status.Leader == m.id
			m.version, m.size, m.inUse = a.status.Version, a.status.DbSize, a.status.DbSizeInUse
			m.lag = int64(index - a.status.RaftIndex)
		}
		observed.members = append(observed.members, m)
	}
	slices.SortFunc(observed.members, func(a, b member) int { return a.ordinal - b.ordinal })
}

// confirmEmptyVolumes queries pods again that reported an empty volume although etcd lists their members as started: a member may have
// started between the two queries. A pod that still waits has lost its volume.
func (observed *clusterSnapshot) confirmEmptyVolumes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, m := range observed.members {
		if m.started && observed.pod(m.ordinal).empty {
			observed.pods[m.ordinal].empty, _ = observed.clients[m.ordinal].find(ctx)
		}
	}
}

// observeAlarms lists alarms if a member reports one, because listing costs a write.
func (observed *clusterSnapshot) observeAlarms(ctx context.Context) error {
	if !slices.ContainsFunc(observed.members, func(m member) bool {
		a := observed.answers[m.ordinal]
		return a.status != nil && alarmed(a.status)
	}) {
		return nil
	}
	return observed.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
		response, err := c.AlarmList(ctx)
		if err != nil {
			return fmt.Errorf("listing alarms: %w", err)
		}
		observed.alarms = response.Alarms
		for _, alarm := range response.Alarms {
			at := slices.IndexFunc(observed.members, func(m member) bool { return m.id == alarm.MemberID })
			switch {
			case at < 0:
				observed.removedMemberAlarm = true
			case alarm.Alarm == etcdserverpb.AlarmType_CORRUPT:
				observed.members[at].corrupt = true
			case alarm.Alarm == etcdserverpb.AlarmType_NOSPACE:
				observed.noSpace = true
			}
		}
		return nil
	})
}

// change calls a function with the client of a healthy member, to change the cluster.
func (observed *clusterSnapshot) change(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	for _, m := range observed.voters() {
		if m.healthy && !m.corrupt {
			return observed.clients[m.ordinal].change(ctx, changeTimeout, do)
		}
	}
	return errNoMemberAnswers
}

func (s *scope) ordinalAt(urls []string) int {
	for ordinal := range maxMembers {
		if slices.Contains(urls, s.peerURL(ordinal)) {
			return ordinal
		}
	}
	return -1
}

// ordinalOf returns the ordinal of a pod, or -1 if the pod does not belong to the cluster.
func ordinalOf(cluster *v1alpha1.EtcdCluster, name string) int {
	number, ok := strings.CutPrefix(name, cluster.Name+"-")
	ordinal, err := strconv.Atoi(number)
	if !ok || err != nil || ordinal < 0 {
		return -1
	}
	return ordinal
}

// templateSize returns the size of volumes in the StatefulSet.
func templateSize(observed *clusterSnapshot) *resource.Quantity {
	return observed.stateful.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage()
}

func identity(id uint64) string { return strconv.FormatUint(id, 16) }
