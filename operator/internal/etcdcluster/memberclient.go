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

// How long a member has to answer. Those that do not are not healthy.
const (
	answerTimeout = 4 * time.Second
	changeTimeout = 20 * time.Second
	defragTimeout = 5 * time.Minute
)

// memberClient is how the operator reaches one member: at the address of its pod, by the name in its certificate.
type memberClient struct {
	address, name string
	tls           *tls.Config
}

// answer is what a member says of itself and of the others.
type answer struct {
	empty  bool // it waits to be told what to start as
	status *clientv3.StatusResponse
	list   *clientv3.MemberListResponse // as a majority agrees, if there is one
}

// credentials are what the members accept the operator by, and who vouches for them.
func credentials(secret *corev1.Secret, trusted []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("client certificate in Secret %s: %w", secret.Name, err)
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

// ask finds out what a member says. One that cannot be reached says nothing, which is no error.
func (c memberClient) ask(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	waits, nobody := c.find(ctx)
	if waits || nobody {
		return answer{empty: waits}
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

// find asks whether there is a process that waits to be told what to start as, and whether there is nobody: a client of etcd
// would ask a pod whose process does not run until the time is over.
func (c memberClient) find(ctx context.Context) (waits, nobody bool) {
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

// alarmed reports whether a member knows of an alarm, of whichever member.
func alarmed(s *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(s.Errors, func(e string) bool {
		return strings.Contains(e, etcdserverpb.AlarmType_NOSPACE.String()) || strings.Contains(e, etcdserverpb.AlarmType_CORRUPT.String())
	})
}

// change lets a member do something to the cluster.
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
