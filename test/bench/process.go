package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// process is a measured server, with its etcd.
type process struct {
	name     string
	commands []*exec.Cmd
	// others are the numbers of processes that something else has started.
	others []int
	// hops are the numbers of the processes that forward the requests of clients to the server.
	hops   []int
	config *rest.Config
	// connections, which clients use in turn
	connections []*http.Client
	// cluster returns the path of a cluster.
	cluster func(name string) string
}

const (
	token       = "benchmark"
	connections = 32
)

func startKCP(ctx context.Context, bin, dir string) (*process, error) {
	port, err := kcptest.FreePort()
	if err != nil {
		return nil, err
	}
	return startKCPAt(ctx, bin, dir, port)
}

func startKCPAt(ctx context.Context, bin, dir string, port int) (*process, error) {
	tokens, err := tokenFile(dir)
	if err != nil {
		return nil, err
	}
	p := &process{name: "kcp", config: config(port), cluster: func(name string) string { return "/clusters/" + name }}
	err = p.start(
		dir,
		filepath.Join(bin, "kcp"),
		"start",
		"--root-directory="+dir,
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(port),
		"--token-auth-file="+tokens,
	)
	if err != nil {
		return nil, err
	}
	return p, p.ready(ctx)
}

func startVanilla(ctx context.Context, bin, dir string) (*process, error) {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = kcptest.FreePort(); err != nil {
			return nil, err
		}
	}
	tokens, err := tokenFile(dir)
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "sa.key")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p := &process{name: "vanilla", config: config(ports[0]), cluster: func(string) string { return "" }}
	err = p.start(
		dir,
		filepath.Join(bin, "etcd"),
		"--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[2]),
		"--log-level=error",
		"--quota-backend-bytes=68719476736",
		"--watch-progress-notify-interval=5s",
	)
	if err != nil {
		return nil, err
	}
	err = p.start(
		dir,
		filepath.Join(bin, "kube-apiserver"),
		"--etcd-servers="+etcd,
		"--cert-dir="+filepath.Join(dir, "certs"),
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(
			ports[0],
		),
		"--token-auth-file="+tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://bench",
		"--service-account-signing-key-file="+key,
		"--service-account-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount",
	)
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, p.ready(ctx)
}

func (p *process) start(dir, program string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(dir, filepath.Base(program)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := command.Start(); err != nil {
		return err
	}
	p.commands = append(p.commands, command)
	return nil
}

// stop stops the server, and then its etcd.
func (p *process) stop() {
	for i := len(p.commands) - 1; i >= 0; i-- {
		_ = p.commands[i].Process.Signal(syscall.SIGTERM)
		_ = p.commands[i].Wait()
	}
}

// ready returns when /readyz of the server succeeds.
func (p *process) ready(ctx context.Context) error {
	if err := p.connect(); err != nil {
		p.stop()
		return err
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		response, err := p.connections[0].Get(p.config.Host + "/readyz")
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	p.stop()
	return fmt.Errorf("waiting for %s: not ready after five minutes", p.name)
}

// connect prepares the connections: every client of a load has its own, like clients in separate processes.
func (p *process) connect() error {
	for range connections {
		config := rest.CopyConfig(p.config)
		config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext // client-go shares no connections of clients with different functions
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		p.connections = append(p.connections, client)
	}
	return nil
}

func config(port int) *rest.Config {
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // both servers create their certificates
	}
}

func tokenFile(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "tokens.csv")
	return file, os.WriteFile(
		file,
		[]byte(token+`,benchmark,benchmark,"system:masters"`+"\n"+quiet+","+quiet+","+quiet+"\n"+noisy+","+noisy+","+noisy+"\n"),
		0o600,
	)
}

func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}
