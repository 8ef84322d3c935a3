package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// prepare returns the directory of the programs, and an empty one for the data of servers.
func prepare() (bin, dir string, err error) {
	if bin, err = programs(); err == nil {
		dir, err = os.MkdirTemp("", "kcp-bench-")
	}
	return bin, dir, err
}

// programs returns the directory of kcp, kube-apiserver and etcd: KCP_BIN, or bin/ of the repository. Without KCP_BIN, it builds them
// from the modules that this repository requires.
func programs() (string, error) {
	bin, given := os.LookupEnv("KCP_BIN")
	if !given {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kcplane/kcp").Output()
		if err != nil {
			return "", fmt.Errorf("finding the repository: %w", err)
		}
		bin = filepath.Join(string(out[:len(out)-1]), "bin")
	}
	for name, source := range map[string]string{
		"kcp":            "github.com/kcplane/kcp/server/cmd/kcp",
		"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
		"etcd":           "github.com/kcplane/kcp/test/bench/etcd",
	} {
		file := filepath.Join(bin, name)
		if _, err := os.Stat(file); given && err == nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "building %s …\n", name)
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", file, source).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return bin, nil
}
