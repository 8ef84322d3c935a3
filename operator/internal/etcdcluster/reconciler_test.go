package etcdcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// rig is an EtcdCluster named x, the operator, and what runs the members.
type testCluster struct {
	*host
	reconciler *Reconciler
	deaths     *operatortest.Deaths // nil: operators do not end
}

func newTestCluster(t *testing.T, members int32) *testCluster {
	t.Helper()
	return newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Replicas: &members})
}

func newTestClusterOf(t *testing.T, spec v1alpha1.EtcdClusterSpec) *testCluster {
	t.Helper()
	t.Parallel()
	cluster := operatortest.New(&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec})
	h := newHost(t, cluster)
	return &testCluster{host: h, reconciler: &Reconciler{Client: cluster, Live: cluster, Recorder: events.NewFakeRecorder(10000), Now: time.Now,
		Repository: "etcd", Version: DefaultVersion, host: func(c *v1alpha1.EtcdCluster, member string) string {
			return h.address(ordinalOf(c, member))
		}}}
}

func (r *testCluster) cluster() *v1alpha1.EtcdCluster {
	r.t.Helper()
	return operatortest.Read(r.t, r.Cluster, "x", &v1alpha1.EtcdCluster{})
}

// step lets the host and the operator do their parts once each.
func (r *testCluster) step() ctrl.Result {
	r.t.Helper()
	r.advanceHost("x")
	next := *r.reconciler
	if r.deaths != nil {
		next.Client = r.deaths.Next().Client(r.Cluster)
	}
	result, err := next.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: operatortest.Key("x")})
	if r.deaths == nil || !errors.Is(err, operatortest.ErrEnded) {
		r.must(err)
	}
	return result
}

// rests takes steps that must not write.
func (r *testCluster) staysUnchanged(steps int) {
	r.t.Helper()
	r.WritesNothing(r.t, func() {
		for range steps {
			r.step()
		}
	})
}

// pollInterval is how long to wait for members. A shorter one costs processor time: each step connects to each member.
const pollInterval = 300 * time.Millisecond

// until goes on until something is so.
func (r *testCluster) until(what string, so func(*v1alpha1.EtcdCluster) bool) *v1alpha1.EtcdCluster {
	r.t.Helper()
	for {
		r.Writes()
		r.step()
		cluster := r.cluster()
		if so(cluster) {
			return cluster
		}
		if end, limited := r.t.Deadline(); limited && time.Until(end) < 10*time.Second { // else the logs are lost
			r.t.Fatalf("%s never came; at last: %+v", what, cluster.Status)
		}
		if r.Writes() == 0 { // the next step is the same until a member has changed
			time.Sleep(pollInterval)
		}
	}
}

func is(name string) func(*v1alpha1.EtcdCluster) bool {
	return func(c *v1alpha1.EtcdCluster) bool { return apimeta.IsStatusConditionTrue(c.Status.Conditions, name) }
}

func (r *testCluster) ready(members int) *v1alpha1.EtcdCluster {
	r.t.Helper()
	return r.until(fmt.Sprintf("a cluster of %d", members), func(c *v1alpha1.EtcdCluster) bool {
		return is(v1alpha1.ConditionReady)(c) && len(c.Status.Members) == members
	})
}

// ask changes the spec.
func (r *testCluster) updateSpec(change func(*v1alpha1.EtcdClusterSpec)) {
	r.t.Helper()
	cluster := r.cluster()
	change(&cluster.Spec)
	cluster.Generation++
	r.must(r.Update(r.t.Context(), cluster))
}

func (r *testCluster) scale(members int32) {
	r.t.Helper()
	r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) { spec.Replicas = &members })
}

func (r *testCluster) expandVolumes(size string) {
	r.t.Helper()
	r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) {
		spec.Storage = &v1alpha1.EtcdStorageSpec{Size: new(resource.MustParse(size))}
	})
}

// loseVolume deletes a pod with its volume.
func (r *testCluster) loseVolume(member string) {
	r.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: dataVolume + "-" + member}}
	r.must(r.Delete(r.t.Context(), claim))
	r.must(r.Delete(r.t.Context(), operatortest.Read(r.t, r.Cluster, member, &corev1.Pod{})))
}

func (r *testCluster) process(member string) *process {
	r.t.Helper()
	return r.running[operatortest.Read(r.t, r.Cluster, member, &corev1.Pod{}).UID]
}

// etcd returns a client with the credentials that consumers have.
func (r *testCluster) etcd(addresses ...string) *clientv3.Client {
	r.t.Helper()
	secret := operatortest.Read(r.t, r.Cluster, ClientSecretName("x"), &corev1.Secret{})
	tls, err := credentials(secret, secret.Data["ca.crt"])
	r.must(err)
	var endpoints []string
	for _, address := range addresses {
		endpoints = append(endpoints, "https://"+net.JoinHostPort(address, strconv.Itoa(ClientPort)))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls, DialTimeout: time.Second, Logger: zap.NewNop()})
	r.must(err)
	r.t.Cleanup(func() { _ = client.Close() })
	return client
}

// writer writes all the time, and remembers what was acknowledged.
type writer struct {
	lock         sync.Mutex
	acknowledged []string
	stop         context.CancelFunc
	done         chan struct{}
}

func (r *testCluster) write() *writer {
	r.t.Helper()
	var addresses []string
	for ordinal := range maxMembers {
		addresses = append(addresses, r.address(ordinal))
	}
	client := r.etcd(addresses...)
	ctx, stop := context.WithCancel(r.t.Context())
	w := &writer{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("/written/%08d", n)
			timed, cancel := context.WithTimeout(ctx, 2*time.Second)
			if _, err := client.Put(timed, key, key); err == nil {
				w.lock.Lock()
				w.acknowledged = append(w.acknowledged, key)
				w.lock.Unlock()
			}
			cancel()
		}
	}()
	return w
}

// verify ends the writes, and looks for each of those that were acknowledged.
func (w *writer) verify(r *testCluster) {
	r.t.Helper()
	w.stop()
	<-w.done
	client := r.etcd(r.address(0))
	got, err := client.Get(r.t.Context(), "/written/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	r.must(err)
	there := map[string]bool{}
	for _, kv := range got.Kvs {
		there[string(kv.Key)] = true
	}
	for _, key := range w.acknowledged {
		if !there[key] {
			r.t.Fatalf("%s was acknowledged, and is lost", key)
		}
	}
	if len(w.acknowledged) == 0 {
		r.t.Error("no write was ever acknowledged")
	}
	r.t.Logf("%d writes were acknowledged, none is lost", len(w.acknowledged))
}

func TestAClusterIsScaledDuringWrites(t *testing.T) {
	r := newTestCluster(t, 1)
	began := r.until("a cluster that can be used", is(v1alpha1.ConditionAvailable))
	if began.Status.ClientSecretName != "x-client" || len(began.Status.Endpoints) != 1 || began.Status.ClusterID == "" {
		t.Errorf("the status for clients is %+v", began.Status)
	}
	w := r.write()
	for _, members := range []int32{3, 5, 3, 1} {
		r.scale(members)
		if ended := r.ready(int(members)); ended.Status.ClusterID != began.Status.ClusterID {
			t.Errorf("the cluster was %s and is %s", began.Status.ClusterID, ended.Status.ClusterID)
		}
	}
	w.verify(r)
	r.staysUnchanged(5)
}

func TestMembersAreReplacedDuringWrites(t *testing.T) {
	r := newTestCluster(t, 3)
	began := r.ready(3)
	w := r.write()
	r.process("x-1").kill(syscall.SIGKILL)
	r.until("a member that is down", is(v1alpha1.ConditionReady))

	for _, leads := range []bool{false, true} { // lose the volume of a follower, then of the leader
		before := r.ready(3)
		lost := before.Status.Members[0]
		for _, m := range before.Status.Members {
			if m.IsLeader == leads {
				lost = m
			}
		}
		r.loseVolume(lost.Name)
		r.until("a member in place of "+lost.Name, func(c *v1alpha1.EtcdCluster) bool {
			for _, m := range c.Status.Members {
				if m.Name == lost.Name && m.ID != lost.ID {
					return is(v1alpha1.ConditionReady)(c)
				}
			}
			return false
		})
	}
	ended := r.ready(3)
	if ended.Status.ClusterID != began.Status.ClusterID {
		t.Errorf("the cluster was %s and is %s", began.Status.ClusterID, ended.Status.ClusterID)
	}
	if len(ended.Status.Repairs) != 2 {
		t.Errorf("two members were replaced, and of them are remembered %+v", ended.Status.Repairs)
	}
	lost := ended.Status.Repairs[1].Member // for the second time
	r.loseVolume(lost)
	r.until("a member that is not replaced again", func(c *v1alpha1.EtcdCluster) bool {
		ready := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		return ready.Reason == reasonRecentlyReplaced && is(v1alpha1.ConditionAvailable)(c) && is(v1alpha1.ConditionDegraded)(c)
	})
	r.staysUnchanged(2)
	r.reconciler.Now = func() time.Time { return time.Now().Add(repairInterval) }
	r.ready(3)
	w.verify(r)
}

func TestNothingChangesDuringQuorumLoss(t *testing.T) {
	r := newTestCluster(t, 3)
	before := r.ready(3)
	r.loseVolume("x-0")
	r.loseVolume("x-1")
	after := r.until("the loss of the majority", is(v1alpha1.ConditionStalled))
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAvailable} {
		if is(name)(after) {
			t.Errorf("it is %s", name)
		}
	}
	if !is(v1alpha1.ConditionQuorumLost)(after) || after.Status.ClusterID != before.Status.ClusterID {
		t.Errorf("status: %+v", after.Status)
	}
	r.staysUnchanged(3)
}

func TestVolumesExpandWithoutReplacingPods(t *testing.T) {
	r := newTestCluster(t, 1)
	before := r.ready(1)
	pod := operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID
	r.expandVolumes("20Gi")
	after := r.until("larger volumes", func(c *v1alpha1.EtcdCluster) bool {
		set := &appsv1.StatefulSet{}
		err := r.Get(t.Context(), operatortest.Key("x"), set)
		return err == nil && set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String() == "20Gi" && is(v1alpha1.ConditionReady)(c)
	})
	claim := operatortest.Read(t, r.Cluster, "data-x-0", &corev1.PersistentVolumeClaim{})
	if size := claim.Spec.Resources.Requests.Storage().String(); size != "20Gi" {
		t.Errorf("the volume has %s", size)
	}
	if operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID != pod || before.Status.ClusterID != after.Status.ClusterID {
		t.Error("the pod was replaced")
	}
}

func TestPodsAreReplacedOneByOneWhenTheSpecChanges(t *testing.T) {
	r := newTestCluster(t, 3)
	before := r.ready(3)
	w := r.write()
	r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) { spec.SnapshotCount = new(int64(5000)) })
	r.until("new pods", func(c *v1alpha1.EtcdCluster) bool {
		pods := &corev1.PodList{}
		r.must(r.List(t.Context(), pods))
		there := map[string]bool{}
		requested := true
		for _, p := range pods.Items {
			there[p.Name] = true
			requested = requested && fmt.Sprint(p.Spec.Containers[0].Args) == fmt.Sprint(arguments(c))
		}
		for _, m := range c.Status.Members { // what was decided from
			if len(there) < 3 && there[m.Name] && !m.Ready {
				t.Errorf("a pod was deleted while %s did not answer", m.Name)
			}
		}
		if len(there) < 2 {
			t.Errorf("of the pods there are %v at a time", there)
		}
		ready := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if !requested && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == c.Generation {
			t.Error("it is Ready while a pod is as it was")
		}
		return requested && len(there) == 3 && is(v1alpha1.ConditionReady)(c)
	})
	if ended := r.cluster(); ended.Status.ClusterID != before.Status.ClusterID {
		t.Errorf("the cluster was %s and is %s", before.Status.ClusterID, ended.Status.ClusterID)
	}
	w.verify(r)
}
