package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// prepare returns the directory of kcp, kube-apiserver and etcd, and an empty one for the data of servers.
func prepare() (bin, dir string, err error) { return prepareWith(withVanillaServer...) }

var withVanillaServer = []string{"kcp", "kube-apiserver", "etcd"}

// prepareWith returns the directory of some programs, and an empty one for the data of servers.
func prepareWith(names ...string) (bin, dir string, err error) {
	if bin, err = programs(names); err == nil {
		dir, err = os.MkdirTemp("", "kcp-bench-")
	}
	return bin, dir, err
}

// sources are the packages of the programs, in the modules that this repository requires.
var sources = map[string]string{
	"kcp":            "github.com/kcplane/kcp/server/cmd/kcp",
	"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
	"etcd":           "github.com/kcplane/kcp/test/bench/etcd",
}

// programs returns the directory of some programs: KCP_BIN, or bin/ of the repository. It builds them, except those that are in KCP_BIN.
func programs(names []string) (string, error) {
	bin, given := os.LookupEnv("KCP_BIN")
	if !given {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kcplane/kcp").Output()
		if err != nil {
			return "", fmt.Errorf("finding the repository: %w", err)
		}
		bin = filepath.Join(string(out[:len(out)-1]), "bin")
	}
	for _, name := range names {
		file := filepath.Join(bin, name)
		if _, err := os.Stat(file); given && err == nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "building %s …\n", name)
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", file, sources[name]).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return bin, nil
}
