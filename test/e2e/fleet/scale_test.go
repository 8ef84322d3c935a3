package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	// fewNamespaces move in one test, or the number in namespacesVariable.
	fewNamespaces      = 60
	namespacesVariable = "KCP_FLEET_NAMESPACES"
	// patience is how long the agents may take for them on a slow machine.
	patience = 10 * time.Minute
	// mostIdle is the most memory of an agent that has nothing to do.
	mostIdle = 60 << 20
)

// Fields of the memory of a process: all of it, and the part without pages of the program file, which the kernel can drop.
const (
	resident  = "VmRSS:"
	anonymous = "RssAnon:"
)

// memory returns a field of the memory of a process in bytes.
func memory(p *kcptest.Process, of string) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == of {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", p.PID())
}

// soon waits until check returns nil. It is for what programs of others, real clusters or agents do, which report some things only once in a
// minute.
func soon(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	kcptest.EventuallyWithin(t, patience, what, check)
}

func (f *fleet) isSmall(t *testing.T) {
	for name, c := range f.clusters {
		kcptest.Eventually(t, "the agent of "+name+" is small", func(context.Context) error {
			used, err := memory(c.agent, resident)
			if err == nil && used >= mostIdle {
				err = fmt.Errorf("it uses %d MiB", used>>20)
			}
			return err
		})
		used, err := memory(c.agent, resident)
		own, ownErr := memory(c.agent, anonymous)
		t.Logf("the idle agent of %s uses %d MiB, of which %d MiB are its own: %v", name, used>>20, own>>20, errors.Join(err, ownErr))
	}
}

// fill creates namespaces with a ConfigMap each.
func fill(t *testing.T, kube kubernetes.Interface, n int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
			if _, err := kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
				return err
			}
			settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"n": fmt.Sprint(i)}}
			_, err := kube.CoreV1().ConfigMaps(namespace.Name).Create(ctx, settings, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// versions returns the resource versions of the namespaces and ConfigMaps of a workspace.
func versions(t *testing.T, kube kubernetes.Interface) map[string]string {
	t.Helper()
	found := map[string]string{}
	namespaces, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range namespaces.Items {
		found[namespaces.Items[i].Name] = namespaces.Items[i].ResourceVersion
	}
	list, err := kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == "kube-root-ca.crt" || list.Items[i].Namespace == "kube-system" {
			continue // the server shows them, and does not store them
		}
		found[list.Items[i].Namespace+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return found
}

// waitForReady waits until all namespaces of a workspace run on one cluster only, and returns when their Assignments were created.
func (f *fleet) waitForReady(t *testing.T, w *kcptest.Cluster, cluster string, want int) (created []time.Time) {
	t.Helper()
	state := ""
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Second, patience, true, func(ctx context.Context) (bool, error) {
		list, err := f.stored.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		created = nil
		others, placing := 0, 0
		for i := range list.Items {
			spec, _ := list.Items[i].Object["spec"].(map[string]any)
			status, _ := list.Items[i].Object["status"].(map[string]any)
			switch {
			case spec["workspace"] != w.Name:
			case spec["cluster"] != cluster:
				others++
			case status["phase"] != string(v1alpha1.AssignmentReady):
				placing++
			default:
				created = append(created, list.Items[i].GetCreationTimestamp().Time)
			}
		}
		state = fmt.Sprintf("%d are ready there, %d are not, and %d are on other clusters", len(created), placing, others)
		return others == 0 && placing == 0 && len(created) == want, nil
	})
	if err != nil {
		t.Fatalf("%d namespaces do not run on %s: %s: %v", want, cluster, state, err)
	}
	return created
}

func (f *fleet) movesMany(t *testing.T) {
	manyNamespaces := fewNamespaces
	if text := os.Getenv(namespacesVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		manyNamespaces = number
	}
	movesPerMinute := manyNamespaces * 2 / 3 // and as many at once
	f.restart(t, fmt.Sprintf("--max-moves-per-minute=%d", movesPerMinute))
	w := f.workspace(t, on("east"))
	config := w.Config(kcptest.Masters)
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, kube, manyNamespaces)
	all := manyNamespaces + 1 // and "default"
	start := time.Now()
	f.waitForReady(t, w, "east", all)
	placed, before := time.Since(start), versions(t, kube)
	start = time.Now()
	w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+on("west"))
	created := f.waitForReady(t, w, "west", all)
	moved, after := time.Since(start), versions(t, kube)
	slices.SortFunc(created, time.Time.Compare)
	for i, at := range created {
		// Creation times have seconds.
		if minutes := (at.Sub(created[0]) + 2*time.Second).Minutes(); float64(i+1) > float64(movesPerMinute)*(1+minutes) {
			t.Errorf("%d namespaces moved in %s", i+1, at.Sub(created[0]))
			break
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the move wrote to objects of the user:\n%s", diff)
	}
	for name, c := range f.clusters {
		used, err := memory(c.agent, resident)
		t.Logf("the agent of %s uses %d MiB: %v", name, used>>20, err)
	}
	used, err := memory(f.controller, anonymous)
	t.Logf("%d namespaces were placed in %s, and moved in %s, with %d objects; the controller uses %d MiB: %v",
		all, placed, moved, len(before), used>>20, err)
	w.Kubectl(t, "delete", "placement", "all")
	f.waitForReady(t, w, "west", 0)
	f.restart(t)
}

// restart starts the controller again, with further arguments.
func (f *fleet) restart(t *testing.T, args ...string) {
	t.Helper()
	if err := f.controller.Stop(); err != nil {
		t.Fatal(err)
	}
	f.restarts++
	f.controller = f.begin(fmt.Sprint("controller-", f.restarts), append(slices.Clone(f.controllerArgs), args...)...)
}
