package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// organization is the workspace below root in which installations are measured. It is on shard-1.
const organization = "bench"

// throughProxy names the sides of the rows.
var throughProxy = &pair{"through a proxy", "directly"}

// shardedRun measures an installation of three shards, a cache server and two front proxies.
type shardedRun struct {
	scale scale
	// bin has the programs, and directory the state of their processes.
	bin, directory string

	installation *sharded.Installation
	// admin is the administrator at the first front proxy.
	admin *process
	// direct is a tenant at the shard of the organization. first and second are the same tenant at the two front proxies. The processor time
	// of direct and first is that of the shard.
	direct, first, second *process
	// bare is the tenant at a reverse proxy that only forwards to the shard, and copies at a process that only copies the bytes of TLS
	// connections to the shard.
	bare, copies *process
	hops         []*exec.Cmd
	// everything are all processes of the installation.
	everything []*process
	rows       []row
}

// runSharded measures what front proxies and further shards add, beside the same requests to the shard itself in the same run.
func runSharded(ctx context.Context, s scale) error {
	bin, dir, err := prepareWith(withVanillaServer...)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = errors.Join(os.Setenv("KCP_BIN", bin), os.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "false"))
	if err != nil {
		return err
	}
	r := &shardedRun{scale: s, bin: bin, directory: dir}
	if err := r.start(ctx, dir); err != nil {
		return err
	}
	defer r.stopHops()
	if err := r.startHops(); err != nil {
		return errors.Join(err, r.installation.Stop())
	}
	defer func() { printTable(os.Stdout, r.rows) }() // the available rows, if the rest fails
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"requests", r.requests}, {"events", r.events}, {"usable", r.usable}, {"elsewhere", r.elsewhere}, {"changes", r.changes},
		{"moves", r.moves}, {"exports", r.memoryOfExports},
	} {
		if !s.parts.MatchString(part.name) {
			continue
		}
		if err = part.measure(ctx); err != nil {
			break
		}
	}
	return errors.Join(err, r.installation.Stop())
}

// start starts the processes, and creates the organization.
func (r *shardedRun) start(ctx context.Context, dir string) error {
	options := sharded.Options{Shards: 2, Cache: true, Proxies: 2}
	options.Users, options.ProxyUsers = sharded.TestUsers()
	var err error
	if r.installation, err = sharded.Start(filepath.Join(dir, "sharded"), options); err != nil {
		return err
	}
	shard := r.installation.Shards[1]
	r.direct = at(shard, kcptest.Alice, shard.ID())
	r.first = at(r.installation.Proxies[0], kcptest.Alice, shard.ID())
	r.first.hops = []int{r.installation.Proxies[0].ID()}
	r.second = at(r.installation.Proxies[1], kcptest.Alice)
	r.admin = at(r.installation.Proxies[0], kcptest.Masters)
	for _, p := range r.installation.Processes() {
		r.everything = append(r.everything, at(p, kcptest.Masters, p.ID()))
	}
	for _, p := range append([]*process{r.direct, r.first, r.second, r.admin}, r.everything...) {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	if _, err := r.createUntilReady(ctx, r.admin, "root", 0, kcptest.On(shard.Name, kcptest.Workspace(organization, "", ""))); err != nil {
		return err
	}
	return errors.Join(r.grant(ctx), r.locate(ctx))
}

// locate lets direct use the name of the logical cluster: a shard alone does not know the path to it.
func (r *shardedRun) locate(ctx context.Context) error {
	name, err := r.clusterOf(ctx, "root", organization)
	r.direct.cluster = func(string) string { return "/clusters/" + name }
	return err
}

// clusterOf returns the logical cluster of a workspace.
func (r *shardedRun) clusterOf(ctx context.Context, parent, name string) (string, error) {
	client, err := r.admin.dynamic(parent, 0)
	if err != nil {
		return "", err
	}
	ws, err := client.Resource(kcptest.Workspaces).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	cluster, _, err := unstructured.NestedString(ws.Object, "spec", "cluster")
	return cluster, err
}

// at returns a process of an installation for clients of a user. pids are the processes whose processor time is measured.
func at(p *sharded.Process, user kcptest.User, pids ...int) *process {
	c := p.Server().Config(user)
	return &process{
		name: p.Name, others: pids,
		config:  &rest.Config{Host: p.URL, BearerToken: user.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.CAData}},
		cluster: path,
	}
}

// path returns the path of a cluster: the organization, unless it is a path from root.
func path(cluster string) string {
	if cluster == busy {
		cluster = "root:" + organization
	}
	return "/clusters/" + cluster
}

// grant gives the tenant all permissions in the organization.
func (r *shardedRun) grant(ctx context.Context) error {
	kube, err := r.admin.kube("root:"+organization, 0)
	if err != nil {
		return err
	}
	for _, role := range []string{kcptest.EntryRole, "cluster-admin"} {
		_, err := kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kcptest.Alice.Name}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *shardedRun) add(rows ...row) {
	for i := range rows {
		if rows[i].Pair == nil {
			rows[i].Pair = throughProxy
		}
	}
	r.rows = append(r.rows, report(rows)...)
}

// requests compares requests through a front proxy, and through the other hops, with requests to the shard.
func (r *shardedRun) requests(ctx context.Context) error {
	servers := []*process{r.first, r.direct, r.bare, r.copies}
	operations := map[*process][]operation{}
	for _, p := range servers {
		var err error
		if operations[p], err = p.loads(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for i, o := range operations[r.first] {
		if r.scale.only != nil && !r.scale.only.MatchString(o.name) {
			continue
		}
		for _, clients := range []int{1, 32} {
			what := fmt.Sprintf("%s, %d clients", o.name, clients)
			got, err := alternate(ctx, servers, clients, r.scale, what, func(p *process) operation { return operations[p][i] })
			if err != nil {
				return err
			}
			r.add(hopRows(what, got)...)
		}
	}
	return nil
}

// hopRows returns the figures that a front proxy has a budget for, and those of the other hops. got are the loads through the front proxy,
// at the shard itself, through the bare reverse proxy, and through what only copies bytes.
func hopRows(what string, got []load) []row {
	proxied, direct, bare, copies := got[0], got[1], got[2], got[3]
	latency := func(what string, l load) row {
		r := throughputRow(what+": p50", "ms", l, direct, 0)
		r.Ours, r.Vanilla = milliseconds(l.p50), milliseconds(direct.p50)
		return r
	}
	budget := latency(what, proxied)
	budget.Budget, budget.Met = "≤ 1.10 ×", budget.Ours <= 1.10*budget.Vanilla
	perSecond := func(hop string, l load) row {
		of := func(l load) float64 { return float64(time.Second) / float64(max(l.cpu, 1)) }
		return row{What: what + hop + ", for each second of processor time of the shard", Unit: "1/s", Ours: of(l), Vanilla: of(direct)}
	}
	cpu := perSecond("", proxied)
	cpu.Budget, cpu.Met = "≥ 0.85 ×", cpu.Ours >= 0.85*cpu.Vanilla
	beside := func(name string, l load) row {
		return row{What: what + ": processor time of the front proxy, beside " + name, Unit: "ms", Ours: milliseconds(proxied.hop),
			Vanilla: milliseconds(l.hop)}
	}
	const throughBare, throughCopy = ", through a bare reverse proxy", ", through a copy of the bytes"
	return []row{budget, latency(what+throughBare, bare), latency(what+throughCopy, copies), cpu, perSecond(throughBare, bare),
		perSecond(throughCopy, copies), beside("that of a bare reverse proxy", bare), beside("that of a copy of the bytes", copies)}
}

// events compares events at watchers.
func (r *shardedRun) events(ctx context.Context) error {
	rows, err := events(ctx, []*process{r.first, r.bare, r.copies}, r.direct, r.scale)
	r.add(rows...)
	return err
}

// createUntilReady creates a workspace, and returns how long it took until it was Ready.
func (r *shardedRun) createUntilReady(
	ctx context.Context, p *process, parent string, connection int, ws *unstructured.Unstructured,
) (time.Duration, error) {
	client, err := p.dynamic(parent, connection)
	if err != nil {
		return 0, err
	}
	workspaces := client.Resource(kcptest.Workspaces)
	return took(func() error {
		got, err := workspaces.Create(ctx, ws, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase == "Ready" {
				return true, nil
			}
			got, err = workspaces.Get(ctx, ws.GetName(), metav1.GetOptions{})
			return false, err
		})
	})
}

// mostOpen limits the calls that have not returned, for machines that do not reach the rate.
const mostOpen = 64

// pace calls operation at a rate for a duration, whether or not the calls before have returned, and returns the times that they say.
func pace(
	ctx context.Context, perSecond int, duration time.Duration, operation func(ctx context.Context, i int) (time.Duration, error),
) (load, error) {
	var (
		group errgroup.Group
		mu    sync.Mutex
		all   []time.Duration
	)
	group.SetLimit(mostOpen)
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	begin := time.Now()
	for i := 0; time.Since(begin) < duration; i++ {
		select {
		case <-ctx.Done():
			return load{}, ctx.Err()
		case <-ticker.C:
		}
		group.Go(func() error {
			d, err := operation(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return load{}, err
	}
	return summarize(slices.Clone(all), time.Since(begin)), nil
}

func took(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// limit is a row without a baseline.
func limit(what string, got, most time.Duration) row {
	return row{What: what, Unit: "ms", Ours: milliseconds(got), Budget: fmt.Sprintf("≤ %d ms", most.Milliseconds()), Met: got <= most}
}
