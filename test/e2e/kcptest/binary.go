package kcptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// sources are the directory of the module, and the package, of each program.
var sources = map[string]struct{ module, pkg string }{
	"kcp":                     {".", "github.com/kcplane/kcp/server/cmd/kcp"},
	"kubectl-kcp":             {".", "github.com/kcplane/kcp/cli/cmd/kubectl-kcp"},
	"kcp-host":                {".", "github.com/kcplane/kcp/test/host"},
	"kcp-operator":            {".", "github.com/kcplane/kcp/operator/cmd/kcp-operator"},
	"etcd-member":             {".", "github.com/kcplane/kcp/operator/cmd/etcd-member"},
	"etcd-snapshot":           {".", "github.com/kcplane/kcp/operator/cmd/etcd-snapshot"},
	"kcp-fleet":               {".", "github.com/kcplane/kcp/fleet/cmd/kcp-fleet"},
	"kcp-fleet-agent":         {".", "github.com/kcplane/kcp/fleet/cmd/kcp-fleet-agent"},
	"kube-apiserver":          {".", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"etcd":                    {".", "github.com/kcplane/kcp/test/bench/etcd"},
	"image":                   {"tools", "github.com/kcplane/kcp/tools/image"},
	"kubectl":                 {"test/tools", "k8s.io/kubernetes/cmd/kubectl"},
	"helm":                    {"test/tools", "helm.sh/helm/v4/cmd/helm"},
	"helm3":                   {"test/compatibility", "helm.sh/helm/v3/cmd/helm"},
	"kustomize-controller":    {"test/compatibility", "github.com/fluxcd/kustomize-controller"},
	"helm-controller":         {"test/compatibility", "github.com/fluxcd/helm-controller"},
	"gitops-agent":            {"test/argocd", "github.com/argoproj/argo-cd/gitops-engine/agent"},
	"kube-controller-manager": {"test/host/node", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	"certmanager":             {"test/host/pods", "github.com/cert-manager/cert-manager/kcphost/certmanager"},
}

var built sync.Map // name → func() (string, error)

// Binary returns the path of a program: one of this repository, or another one that tests run. If KCP_BIN is set, the program is in that
// directory. Otherwise Binary builds it into bin/, which is fast if nothing changed.
func Binary(name string) (string, error) {
	build, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		if dir := os.Getenv("KCP_BIN"); dir != "" {
			return filepath.Join(dir, name), nil
		}
		root, err := repository()
		if err != nil {
			return "", err
		}
		source, known := sources[name]
		if !known {
			return "", fmt.Errorf("unknown program %q", name)
		}
		file := filepath.Join(root, "bin", name)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", file, source.pkg)
		build.Dir = filepath.Join(root, source.module)
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
		return file, nil
	}))
	return build.(func() (string, error))()
}

// repository returns the root of the repository that contains the working directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("the working directory is not in the repository")
}
