package rootshard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// renewAll renews every leaf certificate, as docs/operations.md describes. It waits until all are issued, and kcp and etcd serve them.
// This takes a kubelet up to a minute, and a server another one.
func (n *installed) renewAll(t *testing.T) {
	t.Helper()
	before := n.revisions(t)
	n.Follow(t, "Leaf certificates", 0)
	kcptest.EventuallyWithin(t, 3*time.Minute, "certificates are issued again", func(context.Context) error {
		after := n.revisions(t)
		for leaf, revision := range before {
			if after[leaf] <= revision { // cert-manager sometimes issues twice for one request
				return fmt.Errorf("%s has revision %d, and had %d", leaf, after[leaf], revision)
			}
		}
		return nil
	})
	t.Logf("renewed: %v", before)
	for _, served := range []struct {
		name, port, certificate string
	}{
		{"kcp", "6443", "kcp-server"}, {"etcd", "2379", "kcp-etcd-server"}, {"etcd", "2380", "kcp-etcd-peer"},
	} {
		pods := strings.Fields(n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/name="+served.name, "--output=jsonpath={.items[*].status.podIP}"))
		for _, address := range pods {
			n.serves(t, net.JoinHostPort(address, served.port), served.certificate)
		}
	}
	kcptest.Eventually(t, "the kubeconfig has the renewed certificate", func(context.Context) error {
		kubeconfig := n.Kubectl(t, "get", "secret", "admin-kubeconfig", "--output=go-template={{.data.kubeconfig | base64decode}}")
		if !strings.Contains(kubeconfig, n.Kubectl(t, "get", "secret", "kubeconfig-cert-admin", `--output=jsonpath={.data.tls\.crt}`)) {
			return errors.New("it has another one")
		}
		return nil
	})
}

// revisions returns the number of times that each leaf certificate was issued.
func (n *installed) revisions(t *testing.T) map[string]int {
	t.Helper()
	revisions := map[string]int{}
	for _, leaf := range strings.Fields(n.Kubectl(t, "get", "certificates", "--output=go-template="+
		`{{range .items}}{{if not .spec.isCA}}{{.metadata.name}}={{or .status.revision 0}} {{end}}{{end}}`)) {
		name, text, _ := strings.Cut(leaf, "=")
		revision, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		revisions[name] = revision
	}
	return revisions
}

// serves waits until an address serves the certificate of a Secret.
func (n *installed) serves(t *testing.T, address, secret string) {
	t.Helper()
	kcptest.EventuallyWithin(t, 5*time.Minute, address+" serves the renewed certificate of "+secret, func(context.Context) error {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer connection.Close()
		if !connection.ConnectionState().PeerCertificates[0].Equal(n.Pair(t, secret).Leaf) {
			return errors.New("it serves another one")
		}
		return nil
	})
}
