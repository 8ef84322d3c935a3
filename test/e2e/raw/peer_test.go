package raw

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// patience limits the time for repeating a request until it gets the expected response.
const patience = 30 * time.Second

// users are the users who can send requests.
var users = map[string]kcptest.User{
	"masters": kcptest.Masters, "alice": kcptest.Alice, "bob": kcptest.Bob, "victor": kcptest.Victor, "stranger": kcptest.Stranger, "anonymous": kcptest.Anonymous,
}

// peer is one of the two servers.
type peer struct {
	// base is its URL, with the path of the cluster.
	base *url.URL
	// cluster is the name of the logical cluster, which responses may contain.
	cluster string

	http1, http2 *http.Client
	variables    map[string]string
}

func newPeer(config *rest.Config, cluster string) (*peer, error) {
	base, err := url.Parse(strings.TrimSuffix(config.Host, "/"))
	if err != nil {
		return nil, err
	}
	client := func(protocols ...string) (*http.Client, error) {
		anonymous := rest.AnonymousClientConfig(config)
		settings, err := rest.TLSConfigFor(anonymous)
		if err != nil {
			return nil, err
		}
		settings.NextProtos = protocols
		transport := &http.Transport{TLSClientConfig: settings, DisableCompression: true, ForceAttemptHTTP2: len(protocols) > 1}
		if len(protocols) == 1 {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
	}
	p := &peer{base: base, cluster: cluster, variables: map[string]string{
		"huge": strings.Repeat("x", 3<<20+1<<19), "large": strings.Repeat("x", 2<<20), "deep": strings.Repeat("[", 20000),
		"csr": csr(),
	}}
	if p.http1, err = client("http/1.1"); err != nil {
		return nil, err
	}
	p.http2, err = client("h2", "http/1.1")
	return p, err
}

// csr returns a certificate request for a CertificateSigningRequest. It is the same for both servers.
var csr = sync.OnceValue(func() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	utilruntime.Must(err)
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: "raw"}, nil, nil)
	utilruntime.Must(err)
	return base64.StdEncoding.EncodeToString(request)
})

// expand replaces {{name}} by the value of the variable.
func (p *peer) expand(text string) string {
	for name, value := range p.variables {
		text = strings.ReplaceAll(text, "{{"+name+"}}", value)
	}
	return text
}

// ask returns the response to a request as normalized lines. It repeats the request if the exchange requires it.
func (p *peer) ask(ctx context.Context, e *exchange) ([]string, error) {
	deadline := time.Now().Add(patience)
	for {
		a, err := p.once(ctx, e)
		if err != nil {
			return nil, err
		}
		lines := a.lines(e.only)
		if text := strings.Join(lines, "\n"); e.await == "" || strings.Contains(text, e.await) {
			return lines, a.keep(e.keep)
		} else if time.Now().After(deadline) {
			return nil, fmt.Errorf("the response does not contain %q after %s:\n%s", e.await, patience, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *peer) once(ctx context.Context, e *exchange) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := encode(e.encode, p.expand(e.body))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, e.method, p.base.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	raw, query, _ := strings.Cut(p.expand(e.path), "?")
	unescaped, err := url.PathUnescape(raw)
	if err != nil {
		return nil, err
	}
	request.URL.Path, request.URL.RawPath, request.URL.RawQuery = p.base.Path+unescaped, p.base.Path+raw, query
	if token := users[e.as].Token; token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for name, values := range e.header {
		for _, value := range values {
			request.Header.Add(name, p.expand(value))
		}
	}
	client := p.http2
	if request.Header.Get("Upgrade") != "" {
		client = p.http1
	}
	response, err := client.Do(request)
	if reset := (http2.StreamError{}); errors.As(err, &reset) {
		return &answer{peer: p, header: http.Header{}, parts: [][]byte{[]byte("the server ends the stream without an answer")}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", e.method, e.path, err)
	}
	defer response.Body.Close()
	a := &answer{peer: p, code: response.StatusCode, header: response.Header}
	switch {
	case response.StatusCode == http.StatusSwitchingProtocols:
		a.parts, err = frames(response.Body, e.events)
	case e.events > 0 && response.StatusCode == http.StatusOK:
		a.parts, err = documents(response.Body, e.events)
	default:
		var content []byte
		if content, err = io.ReadAll(response.Body); err == nil && len(content) > 0 {
			a.parts = [][]byte{content}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the response to %s %s: %w", e.method, e.path, err)
	}
	return a, nil
}

// documents returns the first lines of a stream.
func documents(stream io.Reader, count int) ([][]byte, error) {
	reader := bufio.NewReader(stream)
	var all [][]byte
	for range count {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return all, fmt.Errorf("after %d events: %w", len(all), err)
		}
		all = append(all, line)
	}
	return all, nil
}

// frames returns the payload of the first count messages of a websocket, without their types. If count is 0, it reads until the end.
func frames(stream io.Reader, count int) ([][]byte, error) {
	reader := bufio.NewReader(stream)
	var all [][]byte
	for count == 0 || len(all) < count {
		head := make([]byte, 2)
		if _, err := io.ReadFull(reader, head); err != nil {
			return all, err
		}
		length := uint64(head[1] & 0x7f)
		switch length {
		case 126:
			var short uint16
			if err := binary.Read(reader, binary.BigEndian, &short); err != nil {
				return all, err
			}
			length = uint64(short)
		case 127:
			if err := binary.Read(reader, binary.BigEndian, &length); err != nil {
				return all, err
			}
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(reader, payload); err != nil {
			return all, err
		}
		switch opcode := head[0] & 0x0f; opcode {
		case 1, 2:
			all = append(all, payload)
		case 8:
			return all, nil
		}
	}
	return all, nil
}

// encode returns JSON in another encoding.
func encode(encoding, body string) ([]byte, error) {
	if encoding == "" {
		return []byte(body), nil
	}
	if encoding == "base64" {
		return base64.StdEncoding.DecodeString(body)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(body)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	switch encoding {
	case "cbor":
		err := cbor.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out)
		return out.Bytes(), err
	case "protobuf":
		typed, err := scheme.Scheme.New(object.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return nil, err
		}
		err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(typed, &out)
		return out.Bytes(), err
	default:
		return nil, fmt.Errorf("unknown encoding %q", encoding)
	}
}
