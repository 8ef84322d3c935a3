package frontproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// seen is what a shard gets.
type seen struct {
	Shard, Method, URI string
	Header             http.Header
	Trailer            http.Header
	Body               string
}

// fakeShard is a shard that answers with what it gets.
type fakeShard struct {
	name   string
	server *httptest.Server
	sink   tree.Sink
	fed    chan struct{}

	mu sync.Mutex
	// markers are the answers to requests for a logical cluster, by its name.
	markers map[string]tree.Marker
	answer  func(tree.Question) (tree.Answer, error)
	serve   http.HandlerFunc
	asked   int
	got     []seen
	// down reports that the tree stream has nothing.
	down bool
}

func (f *fakeShard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := tree.ParseExpectation(r.Header.Get(tree.ExpectHeader))
	f.mu.Lock()
	m, marked := f.markers[string(e.Cluster)]
	serve := f.serve
	f.mu.Unlock()
	if err == nil && marked {
		w.Header().Set(tree.PlacementHeader, m.String())
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	if serve != nil {
		serve(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	got := seen{f.name, r.Method, r.RequestURI, r.Header, r.Trailer, string(body)}
	f.mu.Lock()
	f.got = append(f.got, got)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(tree.PlacementHeader, "a client must not see this")
	_ = json.NewEncoder(w).Encode(got)
}

func (f *fakeShard) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *fakeShard) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// world is an installation with the shards root and two: root:org is on root, root:org:team on two.
type world struct {
	t         testing.TB
	authority *peerstest.Authority
	users     *peerstest.Authority
	shards    map[string]*fakeShard
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, authority: peerstest.NewAuthority(t), users: peerstest.NewAuthority(t), shards: map[string]*fakeShard{}}
	for _, name := range []string{"root", "two"} {
		f := &fakeShard{name: name, markers: map[string]tree.Marker{}, fed: make(chan struct{}, 100)}
		calls := peers.NewServer(w.authority, scheme.Codecs)
		peers.Handle(calls, tree.CallResolve, []peers.Kind{peers.Proxy}, func(_ context.Context, _ peers.Identity, q tree.Question) (tree.Answer, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.asked++; f.answer == nil {
				return tree.Answer{}, nil
			}
			return f.answer(q)
		})
		f.server = httptest.NewUnstartedServer(calls.WithCalls(f))
		f.server.EnableHTTP2 = true
		f.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{w.authority.Certificate(t, name)}}
		f.server.StartTLS()
		t.Cleanup(f.server.Close)
		w.shards[name] = f
	}
	return w
}

func id(n int) tree.UID { return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)) }

// feed is the tree stream of a shard.
func (w *world) feed(ctx context.Context, shard string, sink tree.Sink) {
	check := func(err error) {
		if err != nil {
			w.t.Error(err)
		}
	}
	edge := func(parent, name, cluster, to string, n int) tree.Edge {
		return tree.Edge{Parent: logicalcluster.Name(parent), Name: name, Cluster: logicalcluster.Name(cluster), Shard: to, Epoch: 1, UID: id(n)}
	}
	down := false
	if w.shards[shard].set(func() { down = w.shards[shard].down }); down {
		sink.Lost(errors.New("down"))
		w.shards[shard].fed <- struct{}{}
		<-ctx.Done()
		return
	}
	check(sink.Begin(tree.Start{Shard: shard, Incarnation: "x"}))
	switch shard {
	case "root":
		for _, s := range w.shards {
			check(sink.Shard(tree.Shard{Name: s.name, BaseURL: s.server.URL}))
		}
		check(sink.Cluster(tree.Cluster{Name: "root", UID: id(0), Epoch: 1}))
		check(sink.Edge(edge("root", "org", "org0", "", 1)))
		check(sink.Edge(edge("org0", "team", "team0", "two", 2)))
		check(sink.Edge(edge("root", "home-of-ada", string(pathindex.HomeCluster("ada")), "two", 4)))
		check(sink.Edge(tree.Edge{Parent: "root", Name: "mounted", URL: "https://elsewhere"}))
		down := edge("root", "down", "down0", "", 3)
		down.Unavailable = true
		check(sink.Edge(down))
	case "two":
		check(sink.Cluster(tree.Cluster{Name: pathindex.HomeCluster("ada"), Parent: "root", Workspace: "home-of-ada", UID: id(4), Epoch: 1}))
		check(sink.Cluster(tree.Cluster{Name: "team0", Parent: "org0", Workspace: "team", UID: id(2), Epoch: 1}))
	}
	check(sink.End())
	w.shards[shard].set(func() { w.shards[shard].sink = sink })
	w.shards[shard].fed <- struct{}{}
	<-ctx.Done()
}

// front is a front proxy.
type front struct {
	*server
	world *world
	url   string
	stop  func()
}

func (w *world) files(directory, name string, certificate tls.Certificate) (certFile, keyFile string) {
	w.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		w.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(directory, name+".crt"), filepath.Join(directory, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// start starts a front proxy whose options change may change.
func (w *world) start(change func(*Options)) *front {
	t := w.t
	t.Helper()
	directory := t.TempDir()
	certFile, keyFile := w.files(directory, "peer", w.authority.Peer(t, peers.Proxy, "front"))
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["root"] = &clientcmdapi.Cluster{Server: w.shards["root"].server.URL, CertificateAuthority: w.authority.File}
	kubeconfig.AuthInfos["proxy"] = &clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile}
	kubeconfig.Contexts["root"] = &clientcmdapi.Context{Cluster: "root", AuthInfo: "proxy"}
	kubeconfig.CurrentContext = "root"
	file := filepath.Join(directory, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	o.RootDirectory, o.RootKubeconfig, o.ShutdownDelay = directory, file, 0
	o.Authentication.ClientCert.ClientCA = w.users.File
	tokens := filepath.Join(directory, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret,bob,7,\"system:masters,team-b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Authentication.TokenFile.TokenFile = tokens
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Serving.Listener, o.Serving.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	o.Serving.ServerCert.CertKey.CertFile, o.Serving.ServerCert.CertKey.KeyFile = w.files(directory, "server", w.authority.Certificate(t, "proxy"))
	if change != nil {
		change(o)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := newServer(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	s.shards.follow = w.feed
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.run(ctx, func() { close(ready) }) }()
	<-ready
	<-w.shards["root"].fed
	<-w.shards["two"].fed
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &front{s, w, "https://" + listener.Addr().String(), stop}
}

// client returns a client with a certificate for a user, and without one if the user is empty.
func (f *front) client(user string, groups ...string) *http.Client {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(f.world.authority.PEM)
	if user != "" {
		config.Certificates = []tls.Certificate{f.world.users.Signed(f.world.t, &x509.Certificate{
			Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	f.world.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request, and returns what a shard got, or the Status.
func (f *front) ask(client *http.Client, method, path string, header http.Header, body io.Reader) (seen, *http.Response, metav1.Status) {
	f.world.t.Helper()
	r, err := http.NewRequest(method, f.url+path, body)
	if err != nil {
		f.world.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	response, err := client.Do(r)
	if err != nil {
		f.world.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.world.t.Fatal(err)
	}
	var got seen
	var status metav1.Status
	if response.StatusCode == http.StatusOK {
		_ = json.Unmarshal(text, &got)
	} else if err := json.Unmarshal(text, &status); err != nil || status.Message == "" {
		f.world.t.Errorf("%s: %s without a Status: %.200s", path, response.Status, text)
	}
	return got, response, status
}
