package etcdcluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"hash/fnv"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/etcdmember"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// host is the rest of a Kubernetes cluster: a StatefulSet controller and a kubelet that run members as real processes, each
// on a loopback address of its own, and an issuer of certificates. Each call does one step.
type host struct {
	*operatortest.Cluster
	t       *testing.T
	dir     string
	network string // the first three numbers of the addresses
	first   int    // the last number of the first member's
	running map[types.UID]*process
	issuers map[string]*authority
	unready bool // no pod is ready, whatever its process does
}

// process is the process of a pod.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   *os.File
}

func (p *process) isRunning() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) kill(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.ended
	_ = p.log.Close()
}

// TestMain lets more tests run at a time than there are processors: those of members wait, most of the time, for each other and
// for the five seconds after which etcd calls a member healthy.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // a third of the time would be spent on collecting garbage
	err := flag.Set("test.parallel", "8")
	if err == nil {
		programs, err = os.MkdirTemp("", "etcd-member-")
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// programs is the directory of what members run.
var programs string

var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", programs, "../../cmd/etcd-member", "../../cmd/etcd-snapshot").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// hosts is how many there are. Each has addresses of its own.
var hosts atomic.Int32

func newHost(t *testing.T, cluster *operatortest.Cluster) *host {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	h := &host{Cluster: cluster, t: t, dir: t.TempDir(), running: map[types.UID]*process{}, issuers: map[string]*authority{},
		network: fmt.Sprintf("127.%d.%d", 64+os.Getpid()/250%128, os.Getpid()%250), first: int(hosts.Add(1)) * maxMembers}
	t.Cleanup(func() {
		for _, p := range h.running {
			p.kill(syscall.SIGKILL)
		}
		if t.Failed() {
			h.showLogs()
		}
	})
	return h
}

func (h *host) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(h.dir, "*.log"))
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil {
			h.t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-3000):])
		}
	}
}

func (h *host) address(ordinal int) string { return fmt.Sprintf("%s.%d", h.network, h.first+ordinal) }

// turn lets everything that is not the operator do its part once.
func (h *host) advanceHost(name string) {
	h.t.Helper()
	h.issue()
	h.runJobs()
	set := &appsv1.StatefulSet{}
	if err := h.Get(h.t.Context(), operatortest.Key(name), set); apierrors.IsNotFound(err) {
		h.killAllExcept(h.pods())
		return
	} else if err != nil {
		h.t.Fatal(err)
	}
	hash := fnv.New32a()
	text, err := set.Spec.Template.Marshal()
	if err != nil {
		h.t.Fatal(err)
	}
	_, _ = hash.Write(text)
	set.Status.ObservedGeneration, set.Status.UpdateRevision = set.Generation, fmt.Sprintf("%s-%x", name, hash.Sum32())
	if set.Status.ReadyReplicas = int32(len(h.running)); h.unready {
		set.Status.ReadyReplicas = 0
	}
	if err := h.Status().Update(h.t.Context(), set); err != nil {
		h.t.Fatal(err)
	}
	alive := map[types.UID]bool{}
	for ordinal := range int(*set.Spec.Replicas) {
		alive[h.pod(set, ordinal)] = true
	}
	pods := &corev1.PodList{}
	h.must(h.List(h.t.Context(), pods))
	for i := range pods.Items {
		if uid := pods.Items[i].UID; !alive[uid] { // scaled away
			h.must(h.Delete(h.t.Context(), &pods.Items[i]))
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: dataVolume + "-" + pods.Items[i].Name}}
			h.must(client.IgnoreNotFound(h.Delete(h.t.Context(), claim)))
		}
	}
	h.killAllExcept(alive)
}

// pods returns those that exist.
func (h *host) pods() map[types.UID]bool {
	pods, there := &corev1.PodList{}, map[types.UID]bool{}
	h.must(h.List(h.t.Context(), pods))
	for _, p := range pods.Items {
		there[p.UID] = true
	}
	return there
}

func (h *host) killAllExcept(alive map[types.UID]bool) {
	for uid, p := range h.running {
		if !alive[uid] {
			p.kill(syscall.SIGTERM)
			delete(h.running, uid)
		}
	}
}

// runJobs runs each Job to its end, on the volume of a member.
func (h *host) runJobs() {
	jobs := &batchv1.JobList{}
	h.must(h.List(h.t.Context(), jobs))
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if len(job.Status.Conditions) > 0 {
			continue
		}
		volumes := map[string]string{}
		for _, v := range job.Spec.Template.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				volumes[v.Name] = h.volume(v.PersistentVolumeClaim.ClaimName)
			}
		}
		replace := strings.NewReplacer(dataMount, volumes[dataVolume], "--directory="+storeMount, "--directory="+volumes["store"], "--etcd=/etcd", "--etcd="+filepath.Join(programs, "etcd-member"))
		var args []string
		for _, arg := range job.Spec.Template.Spec.Containers[0].Args {
			args = append(args, replace.Replace(arg))
		}
		out, err := exec.CommandContext(h.t.Context(), filepath.Join(programs, "etcd-snapshot"), args...).CombinedOutput()
		ended := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}
		if err != nil {
			ended.Type = batchv1.JobFailed
			h.t.Logf("Job %s: %v\n%s", job.Name, err, out)
		}
		job.Status.Conditions = []batchv1.JobCondition{ended}
		h.must(h.Status().Update(h.t.Context(), job))
	}
}

// volume returns the directory of a PersistentVolumeClaim.
func (h *host) volume(claim string) string {
	return filepath.Join(h.dir, string(operatortest.Read(h.t, h.Cluster, claim, &corev1.PersistentVolumeClaim{}).UID))
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// pod makes a pod and its volume, unless they exist, and sees to it that its process runs.
func (h *host) pod(set *appsv1.StatefulSet, ordinal int) types.UID {
	ctx, name := h.t.Context(), fmt.Sprintf("%s-%d", set.Name, ordinal)
	claim := &corev1.PersistentVolumeClaim{}
	if err := h.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: dataVolume + "-" + name}, claim); apierrors.IsNotFound(err) {
		claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: dataVolume + "-" + name,
			Labels: set.Spec.Selector.MatchLabels, UID: uuid.NewUUID()}, Spec: *set.Spec.VolumeClaimTemplates[0].Spec.DeepCopy()}
		h.must(h.Create(ctx, claim))
	} else {
		h.must(err)
	}
	p := &corev1.Pod{}
	if err := h.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: name}, p); apierrors.IsNotFound(err) {
		p = &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		p.Namespace, p.Name, p.UID = set.Namespace, name, uuid.NewUUID()
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = set.Status.UpdateRevision
		p.Status.PodIP = h.address(ordinal)
		h.must(h.Create(ctx, p))
		h.killOthers(ordinal)
	} else {
		h.must(err)
	}
	h.must(os.WriteFile(filepath.Join(h.dir, string(p.UID)+".start"), []byte(p.Annotations[etcdmember.Annotation]), 0o600))
	if running := h.running[p.UID]; running == nil || !running.isRunning() {
		h.start(p, ordinal, string(claim.UID))
	}
	return p.UID
}

// endOthers ends what ran at an address before.
func (h *host) killOthers(ordinal int) {
	for uid, p := range h.running {
		if strings.HasSuffix(p.log.Name(), fmt.Sprintf("-%d.log", ordinal)) {
			p.kill(syscall.SIGKILL)
			delete(h.running, uid)
		}
	}
}

// start runs what the container of a pod would, with its files and addresses in place of those in the container.
func (h *host) start(p *corev1.Pod, ordinal int, volume string) {
	log, err := os.OpenFile(filepath.Join(h.dir, fmt.Sprintf("member-%d.log", ordinal)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	h.must(err)
	replace := strings.NewReplacer(
		"$(POD_NAME)."+peerServiceName("x")+"."+p.Namespace+".svc.cluster.local", h.address(ordinal),
		"$(POD_NAME)", p.Name, "0.0.0.0", h.address(ordinal), "127.0.0.1", h.address(ordinal),
		dataMount, filepath.Join(h.dir, volume), startMount+"/"+startFile, filepath.Join(h.dir, string(p.UID)+".start"),
		serverMount, h.mount("x-server"), peerMount, h.mount("x-peer"), trustMount, h.mount("x-trust"),
	)
	var args []string
	for _, arg := range p.Spec.Containers[0].Args {
		args = append(args, replace.Replace(arg))
	}
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), filepath.Join(programs, "etcd-member"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GOGC=400")
	h.must(cmd.Start())
	started := &process{cmd: cmd, ended: make(chan struct{}), log: log}
	go func() { _ = cmd.Wait(); close(started.ended) }()
	h.running[p.UID] = started
}

// authority signs, as an Issuer does.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	chain       []byte // its certificate and those above it, but for the last one
	root        []byte // that last one, which vouches for itself
}

// certify returns a certificate that an authority signs, and as what it signs others.
func (by *authority) certify(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) (certificate []byte, as *authority) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.BasicConstraintsValid = serial, true
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if template.IsCA {
		template.KeyUsage, template.ExtKeyUsage = template.KeyUsage|x509.KeyUsageCertSign, nil
	}
	signer := by
	if by == nil { // the self-signed one
		signer = &authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if by == nil {
		return certificate, &authority{certificate: parsed, key: key, root: certificate}
	}
	return certificate, &authority{certificate: parsed, key: key, chain: slices.Concat(certificate, by.chain), root: by.root}
}

// issue does what cert-manager does.
func (h *host) issue() {
	list := &certmanager.CertificateList{}
	h.must(h.List(h.t.Context(), list))
	for i := range list.Items {
		c := &list.Items[i]
		if _, known := h.issuers[c.Spec.IssuerRef.Name]; conditions.Unready(c) != "" && (c.Spec.IsCA || known) {
			h.sign(c)
			c.Status.Conditions = []certmanager.CertificateCondition{{Type: "Ready", Status: cmmeta.ConditionTrue, ObservedGeneration: c.Generation}}
			h.must(h.Status().Update(h.t.Context(), c))
		}
	}
}

// sign issues a certificate, which may have been issued before: authorities keep their keys.
func (h *host) sign(c *certmanager.Certificate) {
	key := operatortest.NewKey(h.t)
	if before := h.issuers[c.Name]; before != nil {
		key = before.key
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: c.Spec.CommonName}, DNSNames: c.Spec.DNSNames, IsCA: c.Spec.IsCA}
	if len(c.Spec.DNSNames) > 0 { // members have no names here
		for ordinal := range maxMembers {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(h.address(ordinal)))
		}
	}
	certificate, as := h.issuers[c.Spec.IssuerRef.Name].certify(h.t, template, key)
	if c.Spec.IsCA {
		h.issuers[c.Name] = as
	}
	if len(as.chain) > 0 {
		certificate = as.chain
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	h.must(err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Spec.SecretName}, Data: map[string][]byte{
		"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), "ca.crt": as.root}}
	h.must(client.IgnoreNotFound(h.Delete(h.t.Context(), secret.DeepCopy())))
	h.must(h.Create(h.t.Context(), secret))
}

// mount writes a Secret into files, as the kubelet does.
func (h *host) mount(name string) string {
	directory := filepath.Join(h.dir, name)
	h.must(os.MkdirAll(directory, 0o700))
	for file, content := range operatortest.Read(h.t, h.Cluster, name, &corev1.Secret{}).Data {
		h.must(os.WriteFile(filepath.Join(directory, file), content, 0o600))
	}
	return directory
}
