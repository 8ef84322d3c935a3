package component

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
	// answerTimeout is how long a check waits for an answer of etcd.
	answerTimeout = 5 * time.Second
	// askedAgain is the age of an answer after which etcd is checked again.
	askedAgain = 10 * time.Second
)

// EtcdTarget has the addresses and credentials of an etcd to check.
type EtcdTarget struct {
	Endpoints []string
	// Namespace of the Services that names without dots refer to.
	Namespace string
	Prefix    string
	// Certificate, Key and Authorities may be empty.
	Certificate, Key, Authorities []byte
}

// EtcdChecker checks external etcds in the background, and triggers a reconciliation when the result changes.
type EtcdChecker struct {
	// Ask returns an error if an etcd does not answer, within a bounded time.
	Ask func(context.Context, EtcdTarget) error

	mu      sync.Mutex
	ctx     context.Context
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	answers map[client.ObjectKey]*answer
}

// answer is the last result of a check.
type answer struct {
	question [sha256.Size]byte
	asking   bool
	at       time.Time // zero: no result yet
	err      error
}

// Start implements source.Source: it stores the queue of the reconciler.
func (e *EtcdChecker) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.queue = ctx, queue
	return nil
}

// Answer returns the last result for the etcd of a RootShard, and whether it is known. It starts a new check if the result is old, and
// does not wait for it.
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

// Forget removes the result for the etcd of a RootShard.
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

// CheckEtcd reads from all endpoints of an etcd concurrently. It returns nil if one of them answers, otherwise the errors of all.
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

// checkEndpoint reads a key, which requires a majority of the members.
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
		dialed += "." + q.Namespace + ".svc" // pods resolve such names in their own namespace
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
		return nil // etcd answered: not every user may read this key
	}
	if at.Scheme == "https" && status.Code(err) == codes.Unavailable {
		return cmp.Or(refusal(ctx, dialed+":"+port, config), err)
	}
	return err
}

// refusal returns the TLS alert of a server that refuses a client certificate. In TLS 1.3, the alert arrives after the handshake, and is
// lost when the client writes before it reads.
func refusal(ctx context.Context, address string, config *tls.Config) error {
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil // gRPC reports the same error
	}
	defer connection.Close()
	_ = connection.SetReadDeadline(time.Now().Add(time.Second))
	_, err = connection.Read(make([]byte, 1))
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

// addresses matches the addresses of a connection, one of which differs each time.
var addresses = regexp.MustCompile(`(read|write) tcp \S+->\S+: `)

// cause returns the cause of a gRPC error, without parts that differ each time.
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

// CheckEtcd returns an error if an external etcd does not answer. This blocks no other step, because pods wait for their etcd themselves. A
// ready pod proves that the etcd answers, even if the network blocks connections of the operator.
func (s *Scope) CheckEtcd(ctx context.Context) error {
	key := client.ObjectKeyFromObject(s.Owner)
	if s.EtcdChecker == nil {
		return nil
	}
	if s.managed || s.usesEtcd(ctx) {
		s.EtcdChecker.Forget(key)
		return nil
	}
	question := EtcdTarget{Endpoints: s.Etcd.Endpoints, Namespace: s.Owner.GetNamespace(), Prefix: s.Etcd.Prefix}
	if name := s.Etcd.Secret; name != "" {
		secret := &corev1.Secret{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: name}, secret); client.IgnoreNotFound(err) != nil {
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
	s.After = conditions.Earliest(s.After, Again)
	return nil
}

// usesEtcd reports whether a ready pod uses the etcd, prefix and credentials in the spec.
func (s *Scope) usesEtcd(ctx context.Context) bool {
	if s.built == nil {
		return false
	}
	set := &appsv1.StatefulSet{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, set); err != nil {
		return false
	}
	if set.Status.ReadyReplicas > 0 && workload.RolledOut(set) &&
		s.Etcd.UsedBy(s.built, set.Spec.Template.Annotations, set.Spec.Template.Spec) {
		return true
	}
	pods, err := s.podsOf(ctx)
	return err == nil && slices.ContainsFunc(pods,
		func(pod corev1.Pod) bool {
			return workload.Ready(&pod) && s.Etcd.UsedBy(s.built, pod.Annotations, pod.Spec)
		})
}
