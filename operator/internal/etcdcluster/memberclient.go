package etcdcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/operator/internal/etcdmember"
)

// Timeouts of requests to members. A member that does not answer in time is not healthy.
const (
	answerTimeout = 4 * time.Second
	changeTimeout = 20 * time.Second
	defragTimeout = 5 * time.Minute
)

// memberClient connects to one member: to the address of its pod, with the name in its certificate.
type memberClient struct {
	address, name string
	tls           *tls.Config
}

// answer is what a member reports about itself and the cluster.
type answer struct {
	empty  bool // it has no data, and waits for its start annotation
	status *clientv3.StatusResponse
	list   *clientv3.MemberListResponse // agreed by a majority; nil without one
}

// credentials returns a TLS configuration with the client certificate of the operator and the CA certificates of the members.
func credentials(secret *corev1.Secret, trusted []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate in Secret %s: %w", secret.Name, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		return nil, errors.New("no trusted CA certificate for the members")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}

func (c memberClient) client(ctx context.Context) (*clientv3.Client, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(c.address, strconv.Itoa(ClientPort)))
	}
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + net.JoinHostPort(c.name, strconv.Itoa(ClientPort))},
		TLS: c.tls, DialTimeout: answerTimeout, DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}, Logger: zap.NewNop(),
	})
}

// query returns the answer of a member. A member that cannot be reached has an empty answer, which is not an error.
func (c memberClient) query(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	waiting, unreachable := c.find(ctx)
	if waiting || unreachable {
		return answer{empty: waiting}
	}
	var a answer
	client, err := c.client(ctx)
	if err != nil {
		return a
	}
	defer client.Close()
	if a.status, err = client.Status(ctx, client.Endpoints()[0]); err != nil || a.status.IsLearner {
		return a
	}
	a.list, _ = client.MemberList(ctx)
	return a
}

// find returns whether the process of a pod waits for its start annotation, and whether the pod is unreachable: an etcd client would retry
// until its timeout if the process does not run.
func (c memberClient) find(ctx context.Context) (waiting, unreachable bool) {
	url := "http://" + net.JoinHostPort(c.address, strconv.Itoa(MetricsPort)) + etcdmember.WaitingPath
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, false
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false, ctx.Err() == nil
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK, false
}

// alarmed reports whether a member reports an alarm of any member.
func alarmed(s *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(s.Errors, func(e string) bool {
		return strings.Contains(e, etcdserverpb.AlarmType_NOSPACE.String()) || strings.Contains(e, etcdserverpb.AlarmType_CORRUPT.String())
	})
}

// change calls a function with an etcd client of the member.
func (c memberClient) change(ctx context.Context, timeout time.Duration, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := c.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

var errNoMemberAnswers = errors.New("no member answers")
