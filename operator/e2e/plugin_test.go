package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// plugin runs kubectl kcp installation as an administrator of the cluster, in a new directory.
func plugin(t *testing.T, args ...string) (out, problems string, err error) {
	t.Helper()
	program, err := kcptest.Binary("kubectl-kcp")
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["host"] = &clientcmdapi.Cluster{Server: host.Host, CertificateAuthorityData: host.CAData}
	config.AuthInfos["host"] = &clientcmdapi.AuthInfo{ClientCertificateData: host.CertData, ClientKeyData: host.KeyData, Token: host.BearerToken}
	config.Contexts["host"] = &clientcmdapi.Context{Cluster: "host", AuthInfo: "host", Namespace: operatortest.Namespace}
	config.CurrentContext = "host"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, append([]string{"installation"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+file)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

// An API server, the operator's reconciler and the plugin as users run it.
func TestThePluginShowsAndCollectsInstallations(t *testing.T) {
	i := install(t, shard("shown"))
	i.settle(t)
	out, problems, err := plugin(t, "status", "shown")
	if err != nil || !strings.Contains(out, "Installation team/shown is ready") || !strings.Contains(out, "RootShard/shown") {
		t.Errorf("status: %v\n%s%s", err, out, problems)
	}
	out, problems, err = plugin(t, "status", "shown", "--output=json")
	var all []struct {
		Name       string
		Components []struct{ Kind, Name, Pods string }
	}
	if err := errors.Join(err, json.Unmarshal([]byte(out), &all)); err != nil || len(all) != 1 || all[0].Components[0].Kind != "RootShard" {
		t.Errorf("status as JSON: %v\n%s%s", err, out, problems)
	}
	if _, problems, err = plugin(t, "status", "absent"); err == nil || !strings.Contains(problems, `there is no RootShard "absent"`) {
		t.Errorf("a RootShard that does not exist: %v\n%s", err, problems)
	}
	if out, problems, err = plugin(t, "__complete", "status", "sho"); err == nil && !strings.Contains(out, "shown\n") {
		t.Errorf("completion: %s%s", out, problems)
	}
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	if out, problems, err = plugin(t, "report", "--file="+file); err != nil || !strings.Contains(out, file) {
		t.Fatalf("report: %v\n%s%s", err, out, problems)
	}
	found := unpack(t, file)
	if !strings.Contains(found["objects/rootshards/shown.yaml"], "hostname: kcp.example.com") ||
		!strings.Contains(found["secrets.yaml"], "shown-kcp-operator") || found["objects/statefulsets/shown-kcp.yaml"] == "" {
		t.Errorf("the report has %d files; Secrets:\n%s", len(found), found["secrets.yaml"])
	}
	for name, content := range found {
		if strings.Contains(content, "key of ") { // how the keys of this test begin
			t.Errorf("%s has a private key", name)
		}
	}
	if _, problems, err = plugin(t, "report", "--file="+file); err == nil || !strings.Contains(problems, "file exists") {
		t.Errorf("the report replaces a file: %v\n%s", err, problems)
	}
	// The API server has no StorageClass, which is a warning, and the definitions of the operator and of cert-manager.
	out, problems, err = plugin(t, "check", "--output=yaml")
	if err != nil || !strings.Contains(out, "with all 9 kinds") || !strings.Contains(out, "no default StorageClass") {
		t.Errorf("check: %v\n%s%s", err, out, problems)
	}
	out, problems, err = plugin(t, "check", "--storage-class=fast")
	if err == nil || !strings.Contains(problems, "1 of 5 checks failed") || !strings.Contains(out, `no StorageClass "fast"`) {
		t.Errorf("check of a class: %v\n%s%s", err, out, problems)
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for files := tar.NewReader(compressed); ; {
		header, err := files.Next()
		if err == io.EOF {
			return found
		}
		content, readErr := io.ReadAll(files)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		found[name] = string(content)
	}
}
