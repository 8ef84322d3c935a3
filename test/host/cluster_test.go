package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// testCluster has a number that KCP_HOST refuses, so that no test removes a cluster that is in use.
func testCluster(t *testing.T) cluster {
	t.Helper()
	return cluster{Number: 10, State: filepath.Join(t.TempDir(), "state"), bin: t.TempDir()}
}

func TestClustersOnOneMachineDoNotOverlap(t *testing.T) {
	var nets []netip.Prefix
	names := map[string]bool{}
	for _, number := range []string{"", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		c, err := newCluster(number)
		if err != nil {
			t.Fatal(err)
		}
		for _, net := range []string{c.HostIP() + "/30", c.PodCIDR(), c.ServiceNet()} {
			prefix := netip.MustParsePrefix(net)
			for _, other := range nets {
				if prefix.Overlaps(other) {
					t.Errorf("%s of cluster %s overlaps with %s", net, number, other)
				}
			}
			nets = append(nets, prefix)
		}
		if !netip.MustParsePrefix(c.HostIP() + "/30").Contains(netip.MustParseAddr(c.NodeIP())) {
			t.Errorf("host address %s and node address %s are not in the same network", c.HostIP(), c.NodeIP())
		}
		for _, ip := range []string{c.DNSIP(), c.APIServerIP()} {
			if !netip.MustParsePrefix(c.ServiceNet()).Contains(netip.MustParseAddr(ip)) {
				t.Errorf("%s is not in the network of Services %s", ip, c.ServiceNet())
			}
		}
		for _, name := range []string{c.State, c.Link(), c.CgroupRoot() + " (cgroup)", c.NodeName()} {
			if names[name] {
				t.Errorf("two clusters use %s", name)
			}
			names[name] = true
		}
		if len(c.Link()) > 15 {
			t.Errorf("the name of link %s is longer than 15 characters", c.Link())
		}
	}
	for _, number := range []string{"10", "-1", "one"} {
		if _, err := newCluster(number); err == nil || !strings.Contains(err.Error(), "from 0 to 9") {
			t.Errorf("KCP_HOST=%s: %v", number, err)
		}
	}
}

func TestPrepareWritesEveryFileOfTheNode(t *testing.T) {
	c := testCluster(t)
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(c.State, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range strings.Split(string(content), "\n---\n") {
			if err := yaml.Unmarshal([]byte(document), &map[string]any{}); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.components() {
		for _, arg := range p.args {
			_, file, ok := strings.Cut(arg, "=")
			dir := filepath.Dir(file)
			if !ok || (dir != c.State && dir != c.path("pki")) || filepath.Ext(file) == "" {
				continue // not a file, or a file that the program writes
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s %s: %v", p.name, arg, err)
			}
		}
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	if server := config.Clusters[c.NodeName()].Server; server != "https://10.250.10.2:6443" {
		t.Errorf("the kubeconfig of the administrator has server %s", server)
	}
}

func TestCertificatesAreSignedByTheAuthority(t *testing.T) {
	ca, err := issue(nil, pkix.Name{CommonName: "authority"})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := issue(ca, pkix.Name{CommonName: "server"}, "10.0.0.1", "server.example.com")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	for _, name := range []string{"10.0.0.1", "server.example.com"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if leaf.IsCA {
		t.Error("the certificate of a server is a CA certificate")
	}
}

func TestDownRemovesOnlyClusters(t *testing.T) {
	c := testCluster(t)
	if err := os.MkdirAll(c.State, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := c.path("precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The process with the ID 1 runs, but is not the node.
	if err := os.WriteFile(c.path("pid"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid := c.pid(); pid != 0 {
		t.Errorf("got process %d as the node", pid)
	}
	if err := c.remove(); err == nil || !strings.Contains(err.Error(), "remove it yourself") {
		t.Errorf("a directory that is not of a cluster: got error %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestErrorsNameMissingProgramsAndClusters(t *testing.T) {
	c := testCluster(t)
	t.Setenv("PATH", t.TempDir())
	if err := c.complete(); err == nil || !strings.Contains(err.Error(), "make host-packages installs containerd, runc") {
		t.Errorf("without programs: got error %v", err)
	}
	for name, do := range map[string]func() error{
		"status": func() error { return c.status(context.Background()) },
		"load":   func() error { return c.load(context.Background(), "image.tar") },
		"exec":   func() error { return c.exec(context.Background(), []string{"true"}) },
	} {
		if err := do(); !errors.Is(err, errNotRunning) {
			t.Errorf("%s without a cluster: got error %v", name, err)
		}
	}
}
