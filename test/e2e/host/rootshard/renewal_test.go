package rootshard

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// renewAll renews every leaf certificate, as docs/operations.md describes. It waits until all are issued, and kcp and etcd serve them.
// This takes a kubelet up to a minute, and a server another one.
func (n *installed) renewAll(t *testing.T) {
	t.Helper()
	leaves := strings.Fields(n.Kubectl(t, "get", "certificates", "--output=go-template="+
		`{{range .items}}{{if not .spec.isCA}}{{.metadata.name}}={{or .status.revision 0}} {{end}}{{end}}`))
	n.Follow(t, "Leaf certificates", 0)
	for _, leaf := range leaves {
		name, before, _ := strings.Cut(leaf, "=")
		revision, err := strconv.Atoi(before)
		if err != nil {
			t.Fatal(err)
		}
		n.Kubectl(t, "wait", "certificate/"+name, fmt.Sprintf("--for=jsonpath={.status.revision}=%d", revision+1), "--timeout=3m")
	}
	t.Logf("renewed: %v", leaves)
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
	if !strings.Contains(n.Kubectl(t, "get", "secret", "admin-kubeconfig", "--output=go-template={{.data.kubeconfig | base64decode}}"),
		n.Kubectl(t, "get", "secret", "kubeconfig-cert-admin", `--output=jsonpath={.data.tls\.crt}`)) {
		t.Error("the kubeconfig does not have the renewed certificate")
	}
}

// serves waits until an address serves the certificate of a Secret.
func (n *installed) serves(t *testing.T, address, secret string) {
	t.Helper()
	want := n.Pair(t, secret).Leaf
	if err := wait.PollUntilContextTimeout(t.Context(), time.Second, 5*time.Minute, true, func(context.Context) (bool, error) {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false, nil
		}
		defer connection.Close()
		return connection.ConnectionState().PeerCertificates[0].Equal(want), nil
	}); err != nil {
		t.Errorf("%s does not serve the renewed certificate of %s: %v", address, secret, err)
	}
}
