package rootshard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// answerTimeout is how long an etcd has to answer.
	answerTimeout = 5 * time.Second
	// askedAgain is how old an answer may be.
	askedAgain = 10 * time.Second
)

// EtcdTarget is what it takes to ask an etcd.
type EtcdTarget struct {
	Endpoints []string
	// Namespace is where names without dots are those of Services.
	Namespace string
	Prefix    string
	// Certificate, Key and Authorities may be empty.
	Certificate, Key, Authorities []byte
}

// EtcdChecker asks etcds that others keep whether they answer, beside the reconciler, and wakes it when an answer is another one.
type EtcdChecker struct {
	// Ask returns why an etcd does not answer, within a bounded time.
	Ask func(context.Context, EtcdTarget) error

	mu      sync.Mutex
	ctx     context.Context
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	answers map[client.ObjectKey]*answer
}

// answer is the last one to a question.
type answer struct {
	question [sha256.Size]byte
	asking   bool
	at       time.Time // zero: there is none yet
	err      error
}

// Start keeps the queue of the reconciler.
func (e *EtcdChecker) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.queue = ctx, queue
	return nil
}

// Answer returns the last answer to the question of a RootShard, if there is one, and asks again if it is old. It does not wait.
func (e *EtcdChecker) Answer(key client.ObjectKey, question EtcdTarget) (known bool, err error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", question))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[client.ObjectKey]*answer{}
	}
	a := e.answers[key]
	if a == nil || a.question != sum {
		a = &answer{question: sum}
		e.answers[key] = a
	}
	if e.ctx != nil && !a.asking && time.Since(a.at) >= askedAgain {
		a.asking = true
		go e.ask(e.ctx, key, a, question)
	}
	return !a.at.IsZero(), a.err
}

// Forget drops what is known of the etcd of a RootShard.
func (e *EtcdChecker) Forget(key client.ObjectKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.answers, key)
}

func (e *EtcdChecker) ask(ctx context.Context, key client.ObjectKey, a *answer, question EtcdTarget) {
	err := e.Ask(ctx, question)
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := a.at.IsZero() || (err == nil) != (a.err == nil) || err != nil && err.Error() != a.err.Error()
	a.asking, a.at, a.err = false, time.Now(), err
	if changed && e.answers[key] == a {
		e.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// CheckEtcd reads from an etcd, through each of its endpoints at a time, and returns what keeps all of them from answering.
func CheckEtcd(ctx context.Context, q EtcdTarget) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(q.Certificate) > 0 {
		pair, err := tls.X509KeyPair(q.Certificate, q.Key)
		if err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if len(q.Authorities) > 0 {
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(q.Authorities) {
			return errors.New("ca.crt holds no certificate")
		}
	}
	found := make(chan error, len(q.Endpoints))
	for _, endpoint := range q.Endpoints {
		go func() {
			if err := checkEndpoint(ctx, endpoint, q, config); err != nil {
				found <- fmt.Errorf("%s: %s", endpoint, cause(err))
				return
			}
			found <- nil
		}()
	}
	var failed []string
	for range q.Endpoints {
		err := <-found
		if err == nil {
			return nil
		}
		failed = append(failed, err.Error())
	}
	slices.Sort(failed)
	return errors.New(strings.Join(failed, "; "))
}

// checkEndpoint reads a key, which takes a majority of the members.
func checkEndpoint(ctx context.Context, endpoint string, q EtcdTarget, config *tls.Config) error {
	at, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	host, port := at.Hostname(), at.Port()
	if port == "" {
		port = "2379"
	}
	secure, dialed := insecure.NewCredentials(), host
	if at.Scheme == "https" {
		config = config.Clone()
		config.ServerName = host
		secure = credentials.NewTLS(config)
	}
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		dialed += "." + q.Namespace + ".svc" // which the pods need not add
	}
	if strings.Contains(dialed, ":") {
		dialed = "[" + dialed + "]"
	}
	connection, err := grpc.NewClient("passthrough:///"+dialed+":"+port, grpc.WithTransportCredentials(secure))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	_, err = etcdserverpb.NewKVClient(connection).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(q.Prefix + "/health"), CountOnly: true})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		return nil // that is an answer: not every user may read this key
	}
	if at.Scheme == "https" && status.Code(err) == codes.Unavailable {
		return cmp.Or(refusal(ctx, dialed+":"+port, config), err)
	}
	return err
}

// refusal returns the alert with which a server refuses a client certificate. In TLS 1.3 it comes after the handshake, and is lost when the
// client writes before it reads.
func refusal(ctx context.Context, address string, config *tls.Config) error {
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil // which is what gRPC has seen, too
	}
	defer connection.Close()
	_ = connection.SetReadDeadline(time.Now().Add(time.Second))
	_, err = connection.Read(make([]byte, 1))
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

// addresses of a connection, of which one is another each time.
var addresses = regexp.MustCompile(`(read|write) tcp \S+->\S+: `)

// cause returns what is behind an error of gRPC, in the same words each time.
func cause(err error) string {
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Sprintf("no answer within %s", answerTimeout)
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, `connection error: desc = "`), `"`)
	return addresses.ReplaceAllString(strings.TrimPrefix(text, "transport: "), "")
}

// checkEtcd reports whether an etcd that others keep answers. That holds up nothing else: pods wait for their etcd by themselves. A pod
// that is ready has asked it just now, also where a network lets in pods and not the operator.
func (s *scope) checkEtcd(ctx context.Context) error {
	key := client.ObjectKeyFromObject(s.rs)
	if s.EtcdChecker == nil {
		return nil
	}
	if s.rs.Spec.Etcd.Managed != nil || s.usesEtcd(ctx) {
		s.EtcdChecker.Forget(key)
		return nil
	}
	question := EtcdTarget{Endpoints: s.shard.Etcd.Endpoints, Namespace: s.rs.Namespace, Prefix: s.shard.Etcd.Prefix}
	if name := s.shard.Etcd.Secret; name != "" {
		secret := &corev1.Secret{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: name}, secret); client.IgnoreNotFound(err) != nil {
			return err
		} else if err != nil {
			return conditions.Wait("CheckingEtcd", "waiting for Secret %s, whose certificate etcd is checked with", name)
		}
		question.Certificate, question.Key = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
		question.Authorities = secret.Data["ca.crt"]
	}
	known, err := s.EtcdChecker.Answer(key, question)
	switch {
	case !known:
		return conditions.Wait("CheckingEtcd", "waiting for etcd to answer at %s", strings.Join(question.Endpoints, ", "))
	case err != nil:
		return conditions.Unwatched(askedAgain, conditions.Wait("EtcdUnreachable", "waiting for etcd to answer: %v", err))
	}
	s.after = conditions.Earliest(s.after, again)
	return nil
}

// usesEtcd reports whether a pod is ready that uses the etcd, the prefix and the credentials which the spec names.
func (s *scope) usesEtcd(ctx context.Context) bool {
	set := &appsv1.StatefulSet{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.WorkloadName()}, set); err != nil {
		return false
	}
	if set.Status.ReadyReplicas > 0 && workload.RolledOut(set) && s.shard.UsesEtcd(set.Spec.Template.Annotations, set.Spec.Template.Spec) {
		return true
	}
	pods, err := s.podsOf(ctx)
	return err == nil && slices.ContainsFunc(pods,
		func(pod corev1.Pod) bool { return workload.Ready(&pod) && s.shard.UsesEtcd(pod.Annotations, pod.Spec) })
}
