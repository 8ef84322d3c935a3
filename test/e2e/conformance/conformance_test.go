// Package conformance runs the conformance tests of Kubernetes in a logical cluster next to fifty busy ones.
package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

// neighbours is the number of busy logical clusters.
const neighbours = 50

// lists are the files with the specs that must pass. The slow specs only run if KCP_CONFORMANCE is "all".
const (
	fast = "../../conformance/fast.txt"
	slow = "../../conformance/slow.txt"
)

func TestConformanceOfLogicalCluster(t *testing.T) {
	specs := read(t, fast)
	if os.Getenv("KCP_CONFORMANCE") == "all" {
		specs = append(specs, read(t, slow)...)
	}
	suite, err := kcptest.Binary("conformance.test")
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	stop := surround(t)
	defer stop()
	cluster := server.Cluster(t)
	dir := t.TempDir()
	kubeconfig, report := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "report.json")
	cluster.WriteKubeconfig(t, kubeconfig, kcptest.Masters)
	var focus []string
	for _, spec := range specs {
		focus = append(focus, regexp.QuoteMeta(" "+spec)+"$")
	}
	command := exec.CommandContext(t.Context(), suite, "--kubeconfig="+kubeconfig, "--provider=skeleton", "--kubectl-path="+kubectl,
		"--ginkgo.focus="+strings.Join(focus, "|"), "--ginkgo.json-report="+report, "--ginkgo.no-color", "--ginkgo.timeout=2h", "--test.timeout=2h")
	log := filepath.Join(dir, "log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	command.Stdout, command.Stderr = output, output
	runErr := command.Run()
	passed, failures := results(t, report)
	for _, failure := range failures {
		t.Error(failure)
	}
	for _, spec := range specs {
		if !passed[spec] {
			t.Errorf("did not pass: %s", spec)
		}
	}
	if runErr != nil && len(failures) == 0 {
		t.Errorf("the suite failed: %v", runErr)
	}
	t.Logf("%d of %d specs passed", len(passed), len(specs))
}

// read returns the lines of a list, without comments.
func read(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines []string
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		if line := strings.TrimSpace(scanner.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// surround creates the neighbours and keeps them busy until stop is called.
func surround(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range neighbours {
		cluster := server.Cluster(t)
		client := cluster.Kube(t, kcptest.Masters).CoreV1()
		busy.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("busy-%d", i%10)
				labels := map[string]string{"round": fmt.Sprint(i)}
				_, _ = client.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
				_, _ = client.ConfigMaps("default").List(ctx, metav1.ListOptions{})
				_ = client.ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{})
				select {
				case <-time.After(500 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() {
		cancel()
		busy.Wait()
	}
}

// results returns the specs that passed, and the failures of the others.
func results(t *testing.T, report string) (passed map[string]bool, failures []string) {
	t.Helper()
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("the suite wrote no report: %v", err)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(content, &suites); err != nil {
		t.Fatal(err)
	}
	passed = map[string]bool{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			switch {
			case spec.LeafNodeType != "It" || spec.State == "skipped":
			case spec.State == "passed":
				passed[name] = true
			default:
				failures = append(failures, fmt.Sprintf("%s %s: %s", spec.State, name, spec.Failure.Message))
			}
		}
	}
	return passed, failures
}
