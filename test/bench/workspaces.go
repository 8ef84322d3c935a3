package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	workspacesPath = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	// creators is the number of clients that create workspaces concurrently.
	creators = 32
	// pacedRate is the rate of creation, per second, at which the latency is measured.
	pacedRate = 200
	depth     = 16
	// mostEntered is the maximum number of workspaces that are entered.
	mostEntered = 100_000
)

// mark is the figures at a number of workspaces.
type mark struct {
	Workspaces int
	// PerSecond, and P50 and P99 in milliseconds, are about the creation of the workspaces since the mark before.
	PerSecond, P50, P99 float64
	// Peak is the resident memory of the server and its etcd in bytes during the creation, and Settled the one after that.
	Peak, Settled, Database float64
	Goroutines, Series      int
	// One are latencies of one client in one workspace, and Active those in random workspaces, of the one percent that is active.
	One, Active requests
	// Restart is the time of a start until the server is ready, in seconds.
	Restart float64
}

// requests are latencies in milliseconds.
type requests struct{ Get, Get99, Update, Update99 float64 }

// workspacesRun is the state of a run. It is stored in its directory, so that the run can be resumed.
type workspacesRun struct {
	Port    int     // the same for all starts, because the URL of every workspace contains it
	Empty   float64 // resident memory in bytes without a workspace
	Marks   []mark
	Created int // since the last mark
	Spent   time.Duration
	P50s    []float64
	P99s    []float64
	// Rows are the figures that are measured once.
	Rows []row

	directory string
	bin       string
	kcp       *process
}

func (r *workspacesRun) save() error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := filepath.Join(r.directory, "state.json")
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// measureWorkspaces measures a server with 100, 1,000, … and n workspaces. It stores its state in directory, from which another run
// continues.
func measureWorkspaces(ctx context.Context, n int, directory string) (*workspacesRun, error) {
	bin, err := programs(withVanillaServer)
	if err != nil {
		return nil, err
	}
	r := &workspacesRun{directory: directory, bin: bin}
	content, err := os.ReadFile(filepath.Join(directory, "state.json"))
	if err == nil {
		err = json.Unmarshal(content, r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if r.Port == 0 {
		if r.Port, err = kcptest.FreePort(); err != nil {
			return nil, err
		}
	}
	if r.kcp, err = r.start(ctx); err != nil {
		return nil, err
	}
	defer func() { r.kcp.stop() }()
	if r.Empty == 0 {
		if r.Empty, err = r.kcp.settled(ctx); err != nil {
			return nil, err
		}
	}
	for at := 100; ; at = min(at*10, n) {
		if len(r.Marks) == 0 || r.Marks[len(r.Marks)-1].Workspaces < at {
			if err := r.reach(ctx, at); err != nil {
				return nil, err
			}
		}
		if at == n {
			break
		}
	}
	if len(r.Rows) == 0 {
		if err := r.measureOnce(ctx, n); err != nil {
			return nil, err
		}
	}
	return r, r.save()
}

func (r *workspacesRun) start(ctx context.Context) (*process, error) {
	return startKCPAt(ctx, r.bin, filepath.Join(r.directory, "kcp"), r.Port)
}

// reach creates workspaces until n exist, and measures.
func (r *workspacesRun) reach(ctx context.Context, n int) error {
	before := 0
	if len(r.Marks) > 0 {
		before = r.Marks[len(r.Marks)-1].Workspaces
	}
	m := mark{Workspaces: n}
	for before+r.Created < n {
		part := min(10_000, n-before-r.Created)
		first := before + r.Created
		begin := time.Now()
		l, err := count(ctx, creators, part, func(ctx context.Context, c, i int) error {
			return r.create(ctx, c, "root", fmt.Sprintf("w%d", first+i))
		})
		if err != nil {
			return err
		}
		r.Spent += time.Since(begin)
		r.Created += part
		r.P50s, r.P99s = append(r.P50s, milliseconds(l.p50)), append(r.P99s, milliseconds(l.p99))
		m.Peak = max(m.Peak, r.kcp.resident())
		progress("%d of %d workspaces, %.0f a second, %.0f MiB resident", before+r.Created, n, l.perSecond, r.kcp.resident()/(1<<20))
		if err := r.save(); err != nil {
			return err
		}
	}
	m.PerSecond, m.P50, m.P99 = float64(r.Created)/r.Spent.Seconds(), middle(r.P50s), middle(r.P99s)
	var err error
	if m.Settled, err = r.kcp.settled(ctx); err != nil {
		return err
	}
	if m.Database, err = size(filepath.Join(r.directory, "kcp", "etcd-server", "data", "member", "snap", "db")); err != nil {
		return err
	}
	if m.Goroutines, m.Series, err = r.kcp.counts(ctx); err != nil {
		return err
	}
	if m.One, m.Active, err = r.latencies(ctx, n); err != nil {
		return err
	}
	r.kcp.stop()
	begin := time.Now()
	if r.kcp, err = r.start(ctx); err != nil {
		return err
	}
	m.Restart = time.Since(begin).Seconds()
	r.Marks = append(r.Marks, m)
	r.Created, r.Spent, r.P50s, r.P99s = 0, 0, nil, nil
	progress("%d workspaces: %+v", n, m)
	return r.save()
}

// create creates a workspace and returns when it is ready.
func (r *workspacesRun) create(ctx context.Context, connection int, parent, name string) error {
	body := `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"` + name + `"}}`
	status, answer, err := r.kcp.do(ctx, connection, http.MethodPost, "/clusters/"+parent+workspacesPath, body)
	if err != nil || status == http.StatusConflict { // it exists since an interrupted run
		return err
	}
	if status != http.StatusCreated {
		return fmt.Errorf("workspace %s: %d %s", name, status, answer)
	}
	for deadline := time.Now().Add(time.Minute); !bytes.Contains(answer, []byte(`"phase":"Ready"`)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for workspace %s: not ready after a minute: %s", name, answer)
		}
		if _, answer, err = r.kcp.do(ctx, connection, http.MethodGet, "/clusters/"+parent+workspacesPath+"/"+name, ""); err != nil {
			return err
		}
	}
	return nil
}

// latencies measures requests of one client: in one workspace, and in the one percent that is active.
func (r *workspacesRun) latencies(ctx context.Context, n int) (one, active requests, err error) {
	clusters := max(10, n/100)
	path := func(i int) string {
		return fmt.Sprintf("/clusters/root:w%d/api/v1/namespaces/default/configmaps", i*(n/clusters))
	}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"measured"},"data":{"payload":"` + payload + `"}}`
	_, err = count(ctx, 4, clusters, func(ctx context.Context, c, i int) error {
		status, answer, err := r.kcp.do(ctx, c, http.MethodPost, path(i), body)
		if err == nil && status != http.StatusCreated && status != http.StatusConflict {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return err
	})
	if err != nil {
		return one, active, fmt.Errorf("entering %d workspaces: %w", clusters, err)
	}
	for into, in := range map[*requests]int{&one: 1, &active: clusters} {
		for verb, latency := range map[string][2]*float64{
			http.MethodGet: {&into.Get, &into.Get99}, http.MethodPut: {&into.Update, &into.Update99},
		} {
			var loads []load
			for range 5 {
				l, err := drive(ctx, 1, time.Second, func(ctx context.Context, _, i int) error {
					sent := ""
					if verb == http.MethodPut {
						sent = strings.Replace(body, payload, fmt.Sprintf("%s %d", payload, i), 1)
					}
					status, answer, err := r.kcp.do(ctx, 0, verb, path(rand.IntN(in))+"/measured", sent)
					if err == nil && status != http.StatusOK {
						err = fmt.Errorf("%s: %d %s", verb, status, answer)
					}
					return err
				})
				if err != nil {
					return one, active, err
				}
				loads = append(loads, l)
			}
			m := median(loads)
			*latency[0], *latency[1] = milliseconds(m.p50), milliseconds(m.p99)
		}
	}
	return one, active, nil
}

// enter enters n workspaces, which creates their default objects, and returns the memory of each in KiB.
func (r *workspacesRun) enter(ctx context.Context, n int) (l load, each float64, err error) {
	progress("entering %d workspaces", n)
	before, err := r.kcp.settled(ctx)
	if err != nil {
		return l, 0, err
	}
	l, err = count(ctx, creators, n, func(ctx context.Context, c, i int) error {
		status, answer, err := r.kcp.do(ctx, c, http.MethodGet, fmt.Sprintf("/clusters/root:w%d/api/v1/namespaces/default", i), "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("entering w%d: %d %s", i, status, answer)
		}
		return err
	})
	if err != nil {
		return l, 0, err
	}
	after, err := r.kcp.settled(ctx)
	return l, (after - before) / float64(n) / 1024, err
}

// pace creates n workspaces at pacedRate.
func (r *workspacesRun) pace(ctx context.Context, parent string, n int) (load, error) {
	took := make([]time.Duration, n)
	begin := time.Now()
	_, err := count(ctx, creators, n, func(ctx context.Context, c, i int) error {
		due := begin.Add(time.Duration(i) * time.Second / pacedRate)
		time.Sleep(time.Until(due))
		err := r.create(ctx, c, parent, fmt.Sprintf("w%d", i))
		took[i] = time.Since(due)
		return err
	})
	return summarize(took, time.Since(begin)), err
}

// remove deletes a workspace and returns when it does not exist any more.
func (r *workspacesRun) remove(ctx context.Context, parent, name string) error {
	path := "/clusters/" + parent + workspacesPath + "/" + name
	status, answer, err := r.kcp.do(ctx, 0, http.MethodDelete, path, "")
	for ; err == nil && status == http.StatusOK; status, answer, err = r.kcp.do(ctx, 0, http.MethodGet, path, "") {
		time.Sleep(20 * time.Millisecond)
	}
	if err == nil && status != http.StatusNotFound {
		err = fmt.Errorf("deleting %s: %d %s", name, status, answer)
	}
	return err
}

// do sends a request and returns the response.
func (p *process) do(ctx context.Context, connection int, method, path, body string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.config.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := p.connections[connection%connections].Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// counts returns the numbers of goroutines and metric series of the server.
func (p *process) counts(ctx context.Context) (goroutines, series int, err error) {
	profile, err := p.download(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(string(profile), "goroutine profile: total %d", &goroutines); err != nil {
		return 0, 0, err
	}
	metrics, err := p.download(ctx, "/metrics")
	for line := range bytes.Lines(metrics) {
		if line[0] != '#' {
			series++
		}
	}
	return goroutines, series, err
}

func size(file string) (float64, error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return float64(info.Size()), nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
