// Package abuse measures how a tenant who abuses the server affects another tenant.
package abuse

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// Attackers are separate processes, which run this program again.
func TestMain(m *testing.M) {
	if ordered := os.Getenv(attackVariable); ordered != "" {
		os.Exit(attackAsOrdered(ordered))
	}
	os.Exit(m.Run())
}

// attacks returns the attacks of all families.
func attacks() []attack {
	return slices.Concat(connectionAttacks, bodyAttacks, readAttacks, writeAttacks, identityAttacks, roleAttacks, definitionAttacks, outsideAttacks, workspaceAttacks)
}

func find(name string) *attack {
	all := attacks()
	if i := slices.IndexFunc(all, func(a attack) bool { return a.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// phases are the durations of the measurements before, during and after an attack.
type phases struct{ quiet, attack time.Duration }

// most is how much larger the live heap may be during an attack, and after it, than before.
const most = 256 * mebibyte

// stage is a server with a victim, and the organization of an attacker.
type stage struct {
	server *kcptest.Server
	// group is the control group of attackers.
	group string
	// targets are what the processes of an attacker attack at the same time.
	targets []target
	victim  *victim
	hanging string
	phases  phases
	logged  int
}

// With KCP_ABUSE=all, the measurements take longer.
func TestAbuseByOneTenantDoesNotAffectOthers(t *testing.T) {
	s := prepare(t)
	var rows []row
	for i, a := range attacks() {
		t.Run(a.name, func(t *testing.T) { rows = append(rows, s.suffer(t, i, a)) })
	}
	t.Logf("The server and its clients share %d processors.\n%s", runtime.NumCPU(), table(rows...))
}

func prepare(t *testing.T) *stage {
	t.Helper()
	hanging, group := hang(t), divide(t)
	t.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "false")
	if os.Getenv(profiles) == "" {
		t.Setenv("GODEBUG", "memprofilerate=0") // otherwise a heap profile takes seconds, of which the test only needs the size of the heap
	}
	server, fronts := servers(t, "--mount-proxy-hosts="+hanging)
	s := &stage{server: server, group: group, hanging: hanging, phases: phases{quiet: 300 * time.Millisecond, attack: 6 * time.Second}}
	if os.Getenv("KCP_ABUSE") == "all" {
		s.phases = phases{quiet: 10 * time.Second, attack: time.Minute}
	}
	for _, front := range fronts {
		s.targets = append(s.targets, target{URL: front.URL, CA: front.Config(kcptest.Masters).CAData})
	}
	organize(t, fronts[0], attackers, kcptest.Alice)
	organize(t, fronts[0], victims, kcptest.Victor)
	at := s.targets[0]
	inside := &client{url: at.URL + "/clusters/" + victims, token: kcptest.Victor.Token, http: at.connections()}
	var err error
	if inside, err = inside.workspace(t.Context(), "team", at.connections()); err == nil {
		s.victim, err = newVictim(t.Context(), inside)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := s.victim.watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go s.victim.follow(ctx, events)
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		s.victim.work(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-worked
	})
	time.Sleep(time.Second) // for what is slow only once
	s.victim.take()
	return s
}

// servers starts the server that is measured, and returns it with what clients connect to: itself, or with KCP_ABUSE_SHARDED=true two front
// proxies of an installation, in which it holds everything.
func servers(t *testing.T, flags ...string) (measured *kcptest.Server, fronts []*kcptest.Server) {
	t.Helper()
	if os.Getenv("KCP_ABUSE_SHARDED") != "true" {
		measured = kcptest.StartIn(t, t.TempDir(), flags...)
		return measured, []*kcptest.Server{measured}
	}
	options := sharded.Options{Proxies: 2, ShardFlags: flags}
	options.Users, options.ProxyUsers = sharded.TestUsers()
	installation, err := sharded.Start(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(installation.Kill)
	for _, proxy := range installation.Proxies {
		fronts = append(fronts, proxy.Server())
	}
	measured = installation.Root().Server()
	measured.Process = installation.Root().Process
	return measured, fronts
}

const attackers, victims = "root:attackers", "root:victims"

// organize creates a workspace in root in which user has all permissions.
func organize(t *testing.T, server *kcptest.Server, path string, user kcptest.User) {
	t.Helper()
	name := strings.TrimPrefix(path, "root:")
	org := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
	for _, role := range []string{kcptest.EntryRole, "cluster-admin"} {
		_, err := org.Kube(t, kcptest.Masters).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user.Name}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hang returns the address of a host that accepts connections and never responds.
func hang(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, connection) }()
		}
	}()
	return listener.Addr().String()
}

// suffer runs an attack, and returns the measurements of the victim.
func (s *stage) suffer(t *testing.T, number int, a attack) row {
	t.Helper()
	began := time.Now()
	all := s.attackers(t, number, a)
	defer all.end()
	t.Logf("prepared after %s", time.Since(began).Round(100*time.Millisecond))

	r := row{attack: a.name, heapBefore: heap(t, s.server)}
	r.before = s.feel(t, "before", func() { time.Sleep(s.phases.quiet) })
	forgetPeak(s.server)
	var told report
	r.during = s.feel(t, "during", func() {
		told = all.attack(t)
	})
	r.codes, r.peak = told.Codes, peak(s.server)
	r.heapHeld = heap(t, s.server)
	saveProfile(t, s.server, a.name)
	all.end()
	r.after = s.feel(t, "after", func() { time.Sleep(s.phases.quiet) })
	r.heapAfter = heap(t, s.server)
	t.Logf("measured after %s\n%s", time.Since(began).Round(100*time.Millisecond), table(r))
	s.check(t, a, r, told.Examples)
	return r
}

// feel returns the latencies of the victim during f, and fails the test for every failed request.
func (s *stage) feel(t *testing.T, when string, f func()) latencies {
	t.Helper()
	_, failures := s.victim.take() // requests between the phases, for example during a garbage collection
	f()
	samples, more := s.victim.take()
	failures = append(failures, more...)
	for _, failure := range failures[:min(len(failures), 3)] {
		t.Errorf("%s the attack, the victim got: %s", when, failure)
	}
	if len(failures) > 3 {
		t.Errorf("%s the attack, %d of %d requests of the victim failed", when, len(failures), len(samples))
	}
	return summarize(samples)
}

func (s *stage) check(t *testing.T, a attack, r row, examples map[int]string) {
	t.Helper()
	s.logged = newPanics(t, s.server.Log, s.logged)
	for code, n := range r.codes {
		if !slices.Contains(a.codes, code) {
			t.Errorf("the attacker got status %d %d times, want one of %v, for example: %s", code, n, a.codes, examples[code])
		}
	}
	if r.codes[a.codes[0]] == 0 {
		t.Errorf("the attacker never got status %d: %s", a.codes[0], answers(r.codes))
	}
	for when, size := range map[string]int{"during": r.heapHeld, "after": r.heapAfter} {
		if size > r.heapBefore+most {
			t.Errorf("the live heap was %d MiB before the attack, and %d MiB %s it", r.heapBefore/mebibyte, size/mebibyte, when)
		}
	}
	s.victim.checkWatch(t)
}

// processes are those of one attacker, one for each target.
type processes []*process

// attackers starts the processes of an attacker, and returns when they have prepared their attack.
func (s *stage) attackers(t *testing.T, number int, a attack) (all processes) {
	t.Helper()
	for i, target := range s.targets {
		ordered, err := json.Marshal(order{
			Target: target, Attack: a.name, Number: number*len(s.targets) + i, Token: kcptest.Alice.Token, Path: attackers, Hanging: s.hanging,
			Duration: s.phases.attack,
		})
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, s.group, ordered)
		t.Cleanup(p.end)
		all = append(all, p)
		p.proceed(t)
		p.wantPrepared(t)
		if s.group != "" {
			enter(t, s.group, p.command.Process.Pid)
		}
	}
	return all
}

// attack lets all processes attack at the same time, and returns the sum of their reports.
func (all processes) attack(t *testing.T) report {
	t.Helper()
	for _, p := range all {
		p.proceed(t)
	}
	sum := report{Codes: map[int]int{}, Examples: map[int]string{}}
	for _, p := range all {
		told := p.report(t)
		for code, n := range told.Codes {
			sum.Codes[code] += n
		}
		maps.Copy(sum.Examples, told.Examples)
	}
	return sum
}

func (all processes) end() {
	for _, p := range all {
		p.end()
	}
}

// process is a process of an attacker.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	ended   bool
}

// start starts an attacker, which waits for a line before it does anything.
func start(t *testing.T, group string, ordered []byte) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: confined(group, program)}
	p.command.Env = append(os.Environ(), attackVariable+"="+string(ordered))
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.input, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.output = bufio.NewReader(output)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) proceed(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(p.input); err != nil {
		t.Fatalf("the attacker has exited: %v", err)
	}
}

func (p *process) wantPrepared(t *testing.T) {
	t.Helper()
	if line, err := p.output.ReadString('\n'); line != prepared+"\n" {
		t.Fatalf("the attacker wrote %q, %v", line, err)
	}
}

func (p *process) report(t *testing.T) report {
	t.Helper()
	var told report
	if err := json.NewDecoder(p.output).Decode(&told); err != nil {
		t.Fatalf("the attacker sent no report: %v", err)
	}
	if told.Error != "" {
		t.Fatalf("the attacker failed: %s", told.Error)
	}
	return told
}

// end kills the process, which closes its connections.
func (p *process) end() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}
