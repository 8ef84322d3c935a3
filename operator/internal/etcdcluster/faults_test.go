package etcdcluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// trio are three members, each of which trusts what it found when it started, and shows what is mounted now.
type threeMemberCluster struct {
	*operatortest.Cluster
	reconciler       *Reconciler
	now              time.Time
	made             int
	trusts           map[types.UID]map[string][]byte
	shows            map[string][]byte
	lostQuorum       bool // there was no majority
	operatorAnswered bool // a member has answered the operator when it asked last
}

// signatures remembers what trusts verified: in a matrix of faults the same certificates meet again and again.
var signatures sync.Map

// trusts is operatortest.Verify, once for each certificate and its authorities.
func trusts(chain, authorities []byte) error {
	type pair struct{ chain, authorities string }
	key := pair{string(chain), string(authorities)}
	verified, known := signatures.Load(key)
	if !known {
		verified = &verification{operatortest.Verify(chain, authorities)}
		signatures.Store(key, verified)
	}
	return verified.(*verification).err
}

type verification struct{ err error }

func newThreeMembers(objects ...client.Object) *threeMemberCluster {
	c := operatortest.New(objects...)
	m := &threeMemberCluster{Cluster: c, now: time.Now(), trusts: map[types.UID]map[string][]byte{}, shows: map[string][]byte{}}
	m.reconciler = &Reconciler{Client: c, Live: c, Recorder: c.Events, Now: func() time.Time { return m.now }, Repository: "etcd", Version: DefaultVersion,
		queryMembers: m.answers}
	return m
}

func (m *threeMemberCluster) found(t *testing.T, object client.Object, name string) bool {
	t.Helper()
	err := m.Get(t.Context(), operatortest.Key(name), object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func (m *threeMemberCluster) remove(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(m.Delete(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

func (m *threeMemberCluster) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	if err := m.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// mount shows pods what is in Secrets now. What is gone stays as it was.
func (m *threeMemberCluster) mount(t *testing.T) (all bool) {
	t.Helper()
	all = true
	for _, name := range []string{serverName("x"), peerName("x"), TrustSecretName("x")} {
		secret := &corev1.Secret{}
		if all = m.found(t, secret, name) && all; secret.Name != "" {
			m.shows[name] = secret.Data["tls.crt"]
		}
	}
	return all
}

// run does what the controller of StatefulSets, the scheduler and the kubelet do.
func (m *threeMemberCluster) run(t *testing.T) {
	t.Helper()
	mounted, set := m.mount(t), &appsv1.StatefulSet{}
	if !m.found(t, set, "x") {
		m.collect(t)
		return
	}
	revision := set.Annotations["operator.kcp.io/made"]
	for ordinal := range int(*set.Spec.Replicas) {
		name := fmt.Sprintf("x-%d", ordinal)
		if p := (&corev1.Pod{}); m.found(t, p, name) {
			if metav1.GetControllerOf(p) == nil {
				m.control(t, set, p)
				m.MustUpdate(t, p)
			}
			continue
		} else if !mounted {
			continue
		}
		m.made++
		p := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy()}
		p.Namespace, p.Name, p.UID = operatortest.Namespace, name, types.UID(fmt.Sprint("pod-", m.made, "-", time.Now().UnixNano()))
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
		p.Status.PodIP = fmt.Sprint(ordinal)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}}}}
		m.control(t, set, p)
		m.MustCreate(t, p)
		m.trusts[p.UID] = operatortest.Read(t, m.Cluster, TrustSecretName("x"), &corev1.Secret{}).Data
	}
	status := appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, UpdateRevision: revision, ReadyReplicas: int32(len(m.pods(t)))}
	if set.Status.UpdateRevision != revision || set.Status.ObservedGeneration != set.Generation || set.Status.ReadyReplicas != status.ReadyReplicas {
		set.Status = status
		m.MustUpdateStatus(t, set)
	}
}

func (m *threeMemberCluster) control(t *testing.T, set *appsv1.StatefulSet, p *corev1.Pod) {
	t.Helper()
	if err := controllerutil.SetControllerReference(set, p, m.Scheme()); err != nil {
		t.Fatal(err)
	}
}

// collect does what the garbage collector does with pods of a StatefulSet that does not exist: those without another owner are deleted.
func (m *threeMemberCluster) collect(t *testing.T) {
	t.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	m.found(t, cluster, "x")
	for _, p := range m.pods(t) {
		owners := slices.DeleteFunc(slices.Clone(p.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID != cluster.UID })
		switch {
		case len(owners) == 0:
			m.remove(t, &p)
		case len(owners) < len(p.OwnerReferences):
			p.OwnerReferences = owners
			m.MustUpdate(t, &p)
		}
	}
}

// answers are those of the members: of each that accepts the operator, and those of the majority if it trusts itself.
func (m *threeMemberCluster) answers(clients map[int]memberClient) map[int]answer {
	list, set := &corev1.PodList{}, &appsv1.StatefulSet{}
	if m.List(context.Background(), list) != nil || client.IgnoreNotFound(m.Get(context.Background(), operatortest.Key("x"), set)) != nil {
		return nil
	}
	m.operatorAnswered = false
	trusting, leader := 0, uint64(0)
	for _, p := range list.Items {
		if !pki.TrustedBy(m.shows[peerName("x")], m.trusts[p.UID][trustedPeers]) {
			continue
		}
		ordinal := ordinalOf(&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, p.Name)
		if trusting++; leader == 0 || p.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision { // so that it need not be moved
			leader = uint64(ordinal) + 1
		}
	}
	quorum := trusting > 1
	m.lostQuorum = m.lostQuorum || !quorum
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "x"}}
	response := &clientv3.MemberListResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 7}}
	for ordinal := range 3 {
		response.Members = append(response.Members, &etcdserverpb.Member{ID: uint64(ordinal) + 1, Name: memberName(cluster, ordinal),
			PeerURLs: []string{fmt.Sprintf("https://%s:%d", memberHost(cluster, memberName(cluster, ordinal)), PeerPort)}})
	}
	all := map[int]answer{}
	for _, p := range list.Items {
		ordinal, trusts := ordinalOf(cluster, p.Name), m.trusts[p.UID]
		c, requested := clients[ordinal]
		if !requested || !pki.TrustedBy(m.shows[peerName("x")], trusts[trustedPeers]) || !quorum || !accepts(c, trusts[TrustedClients], m.shows[serverName("x")]) {
			continue
		}
		m.operatorAnswered = true
		all[ordinal] = answer{list: response, status: &clientv3.StatusResponse{Version: DefaultVersion, Leader: leader,
			Header: &etcdserverpb.ResponseHeader{MemberId: uint64(ordinal) + 1, Revision: 1}}}
	}
	return all
}

// accepts reports whether a member and the operator accept each other.
func accepts(c memberClient, trusted, server []byte) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	as, err := x509.ParseCertificate(c.tls.Certificates[0].Certificate[0])
	if err != nil {
		return false
	}
	if _, err := as.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usages}); err != nil {
		return false
	}
	block, _ := pem.Decode(server)
	shown, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	_, err = shown.Verify(x509.VerifyOptions{Roots: c.tls.RootCAs, KeyUsages: usages})
	return err == nil
}

// look lets the operator look, and checks that the conditions are true.
func (m *threeMemberCluster) reconcileAndCheck(t *testing.T) {
	t.Helper()
	m.Reconcile(t, m.reconciler, "x")
	cluster := &v1alpha1.EtcdCluster{}
	if !m.found(t, cluster, "x") {
		return
	}
	running, made := m.distrust(t)
	if wrong := append(running, made...); len(wrong) > 0 && is(v1alpha1.ConditionReady)(cluster) {
		t.Errorf("Ready is True, though %s", strings.Join(wrong, ", "))
	}
	if len(made) > 0 && is(v1alpha1.ConditionCertificatesReady)(cluster) {
		t.Errorf("CertificatesReady is True, though %s", strings.Join(made, ", "))
	}
	available := apimeta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionAvailable)
	if available != nil && available.Status != metav1.ConditionUnknown && cluster.Status.ClusterID != "" &&
		(available.Status == metav1.ConditionTrue) != m.operatorAnswered {
		t.Errorf("members answer: %v, and Available is %s: %s", m.operatorAnswered, available.Status, available.Message)
	}
	if is(v1alpha1.ConditionReady)(cluster) && (!is(v1alpha1.ConditionAvailable)(cluster) || !is(v1alpha1.ConditionCertificatesReady)(cluster)) {
		t.Errorf("Ready is True, and not all other conditions: %+v", cluster.Status.Conditions)
	}
	if is(v1alpha1.ConditionQuorumLost)(cluster) && is(v1alpha1.ConditionAvailable)(cluster) {
		t.Error("QuorumLost and Available are True")
	}
}

// round lets everything go on: the garbage collector, cert-manager, who makes the EtcdCluster again, the pods, and the operator.
func (m *threeMemberCluster) round(t *testing.T) {
	t.Helper()
	m.now = m.now.Add(40 * time.Second)
	if !m.found(t, &v1alpha1.EtcdCluster{}, "x") {
		for _, object := range m.everything(t) {
			if by := metav1.GetControllerOf(object); by != nil && by.Kind == "EtcdCluster" {
				m.remove(t, object)
			}
		}
		m.run(t)
		m.made++
		m.MustCreate(t, threeMembers(fmt.Sprint("again-", m.made)))
	}
	m.Certify(t)
	m.run(t)
	m.reconcileAndCheck(t)
	m.run(t)
}

func (m *threeMemberCluster) settle(t *testing.T) {
	t.Helper()
	quiet := 0
	for range 60 {
		m.Writes()
		if m.round(t); m.Writes() > 0 || !is(v1alpha1.ConditionReady)(operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{})) {
			quiet = 0
		} else if quiet++; quiet == 2 {
			return
		}
	}
	for _, c := range operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{}).Status.Conditions {
		t.Log(c.Type, c.Status, c.Reason, c.Message)
	}
	t.Error("it does not come to rest")
}

// distrust verifies each certificate with the CA certificates of its peers, and returns the failures: of running members, and of members that
// would be created now.
func (m *threeMemberCluster) distrust(t *testing.T) (running, made []string) {
	t.Helper()
	data := func(name, key string) []byte {
		secret := &corev1.Secret{}
		m.found(t, secret, name)
		return secret.Data[key]
	}
	verify := func(who, by string, certificate, authorities []byte) []string {
		if err := trusts(certificate, authorities); err != nil {
			return []string{fmt.Sprintf("%s refuses %s: %v", by, who, err)}
		}
		return nil
	}
	client, operator := data(ClientSecretName("x"), "tls.crt"), data(operatorName("x"), "tls.crt")
	for _, p := range m.pods(t) {
		trusts := m.trusts[p.UID]
		running = slices.Concat(running, verify("its peers", p.Name, m.shows[peerName("x")], trusts[trustedPeers]),
			verify("kcp", p.Name, client, trusts[TrustedClients]), verify("the operator", p.Name, operator, trusts[TrustedClients]))
	}
	running = append(running, verify("the members", "kcp", m.shows[serverName("x")], data(TrustSecretName("x"), TrustedClients))...)
	clients, peers := data(TrustSecretName("x"), TrustedClients), data(TrustSecretName("x"), trustedPeers)
	made = slices.Concat(verify("kcp", "a member", client, clients), verify("the operator", "a member", operator, clients),
		verify("a member", "kcp", data(serverName("x"), "tls.crt"), clients), verify("a member", "a member", data(peerName("x"), "tls.crt"), peers))
	return running, made
}

func (m *threeMemberCluster) everything(t *testing.T) []client.Object {
	t.Helper()
	var all []client.Object
	for _, list := range []client.ObjectList{
		&v1alpha1.EtcdClusterList{}, &certmanager.IssuerList{}, &certmanager.CertificateList{}, &corev1.SecretList{}, &corev1.ServiceList{},
		&policyv1.PodDisruptionBudgetList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{},
	} {
		if err := m.List(t.Context(), list, client.InNamespace(operatortest.Namespace)); err != nil {
			t.Fatal(err)
		}
		if err := apimeta.EachListItem(list, func(item runtime.Object) error {
			all = append(all, item.(client.Object))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func threeMembers(uid string) *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "x", UID: types.UID(uid), Generation: 1}}
}

// trustPhases of a rotation, each of which begins where the one before has ended.
var trustPhases = []struct {
	name     string
	rotating string // the reason, as long as nothing else happens
	begin    func(*testing.T, *threeMemberCluster)
}{
	{"before", "", func(t *testing.T, m *threeMemberCluster) { m.settle(t) }},
	{"authorities have other keys", v1alpha1.RotatingRenewable, func(t *testing.T, m *threeMemberCluster) {
		for _, name := range []string{ClientIssuerName("x"), peerCAName("x")} {
			m.remove(t, operatortest.Read(t, m.Cluster, name, &corev1.Secret{}))
		}
		m.Certify(t)
	}},
	{"some trust both", v1alpha1.RotatingRenewable, func(t *testing.T, m *threeMemberCluster) {
		for before := m.made; m.made == before; {
			m.round(t)
		}
	}},
	{"all trust both", v1alpha1.RotatingRenewable, func(t *testing.T, m *threeMemberCluster) { m.settle(t) }},
	{"all is renewed", v1alpha1.RotatingRenewed, func(t *testing.T, m *threeMemberCluster) {
		for _, name := range []string{serverName("x"), peerName("x"), ClientSecretName("x"), operatorName("x")} {
			m.remove(t, operatortest.Read(t, m.Cluster, name, &corev1.Secret{}))
		}
		m.settle(t)
	}},
}

// Carriers bear the trust, or keep those that do; they are deleted in every phase. What is no carrier is deleted in one phase. The first
// carriers, which decide what is trusted, are deleted in pairs with each other carrier, each pair in one phase: the first pair in the first
// phase, the second pair in the second one, and so on. With KCP_FAULTS=all, every object is deleted in every phase, alone and with each other
// one.
var (
	deciders = []string{"EtcdCluster x", "Secret x-peer-ca", "Secret x-trust"}
	carriers = append(deciders, "Secret x-ca", "StatefulSet x", "Certificate x-peer-ca", "Secret x-server", "Secret x-peer", "Secret x-operator")
)

// Whatever is deleted, one object or two, and however far a rotation is: members, their clients and the operator trust each other again
// without help, no condition says so before they do, and the rotation goes on from where it was.
func TestNoDeletionDuringARotationEndsTheTrust(t *testing.T) {
	t.Parallel()
	made := []client.Object{threeMembers("first")}
	for ordinal := range 3 { // their volumes are there: how members are added is not what this is about
		made = append(made, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-x-%d", ordinal), Labels: labels(threeMembers(""))}})
	}
	m, all := newThreeMembers(made...), os.Getenv(operatortest.AllFaults) == "all"
	for number, phase := range trustPhases {
		phase.begin(t, m)
		t.Run(phase.name, func(t *testing.T) {
			before, pairs := m.everything(t), 0
			for n, first := range before {
				if all || slices.Contains(carriers, called(first)) || phase.name == "all trust both" {
					m.faults(t, phase.rotating, before, first)
				}
				for _, second := range before[n+1:] {
					one, two := called(first), called(second)
					decide := slices.Contains(deciders, one) && slices.Contains(carriers, two) || slices.Contains(deciders, two) && slices.Contains(carriers, one)
					if decide {
						pairs++
					}
					if all || decide && pairs%len(trustPhases) == number {
						m.faults(t, "", before, first, second)
					}
				}
			}
		})
	}
}

func called(object client.Object) string {
	kind := fmt.Sprintf("%T", object)
	return kind[strings.LastIndexByte(kind, '.')+1:] + " " + object.GetName()
}

// faults deletes objects of a copy of what there was.
func (m *threeMemberCluster) faults(t *testing.T, rotating string, before []client.Object, deleted ...client.Object) {
	t.Helper()
	var names []string
	for _, object := range deleted {
		names = append(names, called(object))
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "PersistentVolumeClaim") }) {
		return // the data, which are not what this is about
	}
	t.Run(strings.Join(names, " and "), func(t *testing.T) {
		var copies []client.Object
		for _, object := range before {
			object = object.DeepCopyObject().(client.Object)
			object.SetResourceVersion("")
			copies = append(copies, object)
		}
		next := newThreeMembers(copies...)
		next.now, next.made = m.now, m.made
		for uid, trusts := range m.trusts {
			next.trusts[uid] = trusts
		}
		for name, shown := range m.shows {
			next.shows[name] = shown
		}
		for _, object := range deleted {
			next.remove(t, object)
		}
		if !slices.Contains(names, "EtcdCluster x") {
			next.reconcileAndCheck(t)
		}
		next.settle(t)
		if running, made := next.distrust(t); len(running)+len(made) > 0 {
			t.Errorf("in the end, %s", strings.Join(append(running, made...), ", "))
		}
		there := map[string]bool{}
		for _, object := range next.everything(t) {
			there[called(object)] = true
		}
		for _, object := range before {
			if !there[called(object)] {
				t.Errorf("in the end, there is no %s", called(object))
			}
		}
		if next.lostQuorum && len(names) == 1 && !slices.Contains([]string{"EtcdCluster x", "Secret x-peer"}, names[0]) {
			t.Error("there was no majority")
		}
		c := apimeta.FindStatusCondition(operatortest.Read(t, next.Cluster, "x", &v1alpha1.EtcdCluster{}).Status.Conditions, v1alpha1.ConditionRotating)
		if strings.HasSuffix(names[0], "-ca") || names[0] == "Secret x-trust" && rotating == v1alpha1.RotatingRenewed {
			return // another rotation begins, or this one is ended
		}
		if rotating != "" && (c.Status != metav1.ConditionTrue || c.Reason != rotating) {
			t.Errorf("Rotating is %s %s", c.Status, c.Reason)
		}
	})
}
