package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	quiet, noisy = "quiet", "noisy" // users, whose tokens are their names
	// idleVariable is set for a process that runs with idle scheduling priority.
	idleVariable = "KCP_BENCH_IDLE"
)

var workspaces = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}

// noise is the configuration of a process of noisy clients.
type noise struct {
	URL, Path string
	Clients   int
}

// runFairness measures one client of a tenant alone, and beside clients of another tenant in a separate process.
func runFairness(ctx context.Context, s scale) error {
	bin, dir, err := prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kcp, err := startKCP(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return err
	}
	defer kcp.stop()
	for _, path := range []string{"root:one", "root:two", "root:both", "root:both:one", "root:both:two"} {
		if err := kcp.workspace(ctx, path); err != nil {
			return fmt.Errorf("workspace %s: %w", path, err)
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "one client of a tenant\tbeside\t1/s alone\t1/s beside\tratio\tp50, p99 ms alone\tp50, p99 ms beside\tratio of p99")
	for _, pair := range []struct{ quiet, noisy, what string }{
		{"root:one", "root:two", "another workspace below root"}, {"root:both:one", "root:both:two", "another workspace of its own"},
	} {
		if err := kcp.beside(ctx, out, s, pair.quiet, pair.noisy, pair.what); err != nil {
			return err
		}
	}
	return nil
}

// workspace creates a workspace with a hundred ConfigMaps, in which both users have all permissions.
func (p *process) workspace(ctx context.Context, path string) error {
	last := strings.LastIndexByte(path, ':')
	parent, name := path[:last], path[last+1:]
	client, err := p.dynamic(parent, 0)
	if err != nil {
		return err
	}
	ws := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}},
	}
	if _, err := client.Resource(workspaces).Create(ctx, ws, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind":       "ClusterRoleBinding",
		"metadata":   map[string]any{"name": "tenants"},
		"roleRef":    map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{
			map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": quiet},
			map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": noisy},
		},
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := p.send(ctx, 0, "POST", "/clusters/"+path+"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	maps, err := p.configMaps(ctx, path)
	if err != nil {
		return err
	}
	_, err = maps.prepare(ctx)
	return err
}

// beside measures some requests alone, and beside 8 and 50 noisy clients, in turn.
func (p *process) beside(ctx context.Context, out io.Writer, s scale, own, others, what string) error {
	tenant, err := p.as(quiet)
	if err != nil {
		return err
	}
	maps, err := tenant.configMaps(ctx, own)
	if err != nil {
		return err
	}
	crowds := []int{0, 8, 50}
	for _, o := range maps.operations() {
		if s.only != nil && !s.only.MatchString(o.name) {
			continue
		}
		loads := make([][]load, len(crowds))
		for range s.rounds {
			for i, clients := range crowds {
				l, err := p.besides(ctx, noise{p.config.Host, others, clients}, func() (load, error) { return drive(ctx, 1, s.slice, o.do) })
				if err != nil {
					return fmt.Errorf("%s beside %d clients: %w", o.name, clients, err)
				}
				loads[i] = append(loads[i], l)
			}
		}
		alone := median(loads[0])
		for i, clients := range crowds[1:] {
			l := median(loads[i+1])
			fmt.Fprintf(
				out,
				"%s\t%d clients of %s\t%.0f\t%.0f\t%.2f\t%.2f, %.2f\t%.2f, %.2f\t%.1f\n",
				o.name,
				clients,
				what,
				alone.perSecond,
				l.perSecond,
				l.perSecond/alone.perSecond,
				milliseconds(alone.p50),
				milliseconds(alone.p99),
				milliseconds(l.p50),
				milliseconds(l.p99),
				float64(l.p99)/float64(alone.p99),
			)
		}
	}
	return nil
}

// besides measures while noisy clients run.
func (p *process) besides(ctx context.Context, n noise, measure func() (load, error)) (load, error) {
	if n.Clients == 0 {
		return measure()
	}
	told, err := json.Marshal(n)
	if err != nil {
		return load{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return load{}, err
	}
	command := exec.CommandContext(ctx, self, "-noise="+string(told))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		return load{}, err
	}
	if err := command.Start(); err != nil {
		return load{}, err
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return load{}, fmt.Errorf("running the noisy clients: %w", err)
	}
	return measure()
}

// as returns the server with a user's connections.
func (p *process) as(user string) (*process, error) {
	other := &process{name: p.name, config: rest.CopyConfig(p.config), cluster: p.cluster}
	other.config.BearerToken = user
	return other, other.connect()
}

// idle lowers the priority of this process to idle, so that the figures depend on the server and not on noisy clients. A scheduling
// policy belongs to a thread, so the process starts the program again to apply it to all threads.
func idle() error {
	if os.Getenv(idleVariable) != "" {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("scheduling policy: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), idleVariable+"=1"))
}

// makeNoise is the process of noisy clients: they list, read and write as fast as the server responds.
func makeNoise(ctx context.Context, told string) error {
	var n noise
	if err := json.Unmarshal([]byte(told), &n); err != nil {
		return err
	}
	if err := idle(); err != nil {
		return err
	}
	p := &process{name: "kcp", config: config(0), cluster: func(name string) string { return "/clusters/" + name }}
	p.config.Host, p.config.BearerToken = n.URL, noisy
	if err := p.connect(); err != nil {
		return err
	}
	maps, err := p.configMaps(ctx, n.Path)
	if err != nil {
		return err
	}
	operations := maps.operations()
	var served sync.Once
	var group sync.WaitGroup
	for client := range n.Clients {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := operations[(client+i)%len(operations)].do(ctx, client%connections, i)
				if err == nil && i > 3 {
					served.Do(func() { fmt.Println("served") })
				}
				var status apierrors.APIStatus
				if err != nil && !errors.As(err, &status) && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "noise:", err)
					return
				}
			}
		})
	}
	group.Wait()
	return nil
}
