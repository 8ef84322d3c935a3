package abuse

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// attack is something that a tenant does to the server, on purpose or by mistake.
type attack struct {
	// name is a sentence that describes the attack.
	name string
	// prepare creates what the attack requires, before the measurement.
	prepare func(context.Context, *attacker) error
	// run attacks until the context ends, or until it reaches a limit.
	run func(context.Context, *attacker) error
	// codes are the status codes that the attacker may get. The first one is the purpose of the attack: the attacker must get it.
	codes []int
}

// attackVariable contains the order of the attacker in its process.
const attackVariable = "KCP_ABUSE_ATTACKER"

// order describes the task of an attacker's process.
type order struct {
	Target target
	// Attack is the name of an attack. Number makes the names of its workspaces unique.
	Attack string
	Number int
	// Token is the token of the attacker. Path is the workspace in which the attacker has all permissions, and Logical its logical
	// cluster.
	Token, Path string
	// Hanging is the address of a host that never responds, for mounts.
	Hanging  string
	Duration time.Duration
}

// report is the result that an attacker sends.
type report struct {
	Codes map[int]int
	// Examples has a response for each unexpected code.
	Examples map[int]string
	Error    string
}

// attacker is the process of an attacking tenant.
type attacker struct {
	order
	// client is a client for a new workspace of the attacker, organization one for its parent.
	*client
	organization *client
	// life ends with the process, after the attack, so that connections that use it are open when memory is measured.
	life context.Context

	expected []int
	// issuer is an issuer that an attack has prepared.
	issuer *kcptest.Issuer

	mu       sync.Mutex
	codes    map[int]int
	examples map[int]string
}

// attackAsOrdered is the process of an attacker. It prepares the attack, writes a line, waits for a line, attacks, sends a report, and
// keeps its connections until its input ends.
func attackAsOrdered(ordered string) int {
	a := &attacker{life: context.Background(), codes: map[int]int{}, examples: map[int]string{}}
	if err := a.obey(ordered); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(report{Error: err.Error()})
		return 1
	}
	return 0
}

func (a *attacker) obey(ordered string) error {
	if err := json.Unmarshal([]byte(ordered), &a.order); err != nil {
		return err
	}
	chosen := find(a.Attack)
	if chosen == nil {
		return fmt.Errorf("unknown attack %q", a.Attack)
	}
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	var err error
	a.organization = &client{url: a.Target.URL + "/clusters/" + a.Path, token: a.Token, http: a.Target.connections()}
	if a.client, err = a.organization.workspace(a.life, fmt.Sprintf("attack-%d", a.Number), a.Target.connections()); err != nil {
		return fmt.Errorf("creating the workspace of the attacker: %w", err)
	}
	if chosen.prepare != nil {
		if err := chosen.prepare(a.life, a); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	a.answered, a.expected = a.count, chosen.codes
	fmt.Println(prepared)
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(a.life)
	defer cancel()
	go a.endWhenAnswered(cancel)
	if err := chosen.run(ctx, a); err != nil && ctx.Err() == nil {
		return fmt.Errorf("attacking: %w", err)
	}
	<-ctx.Done()
	a.mu.Lock()
	err = json.NewEncoder(os.Stdout).Encode(report{Codes: a.codes, Examples: a.examples})
	a.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, input)
	return err
}

// extension is how much longer an attack lasts at most, if the attacker has not got the answer that it expects most.
const extension = 2 * time.Minute

// endWhenAnswered ends an attack after its duration, but not before the first expected answer: on a slow machine, the server may take longer
// for a single request of the attacker, because it serves others first.
func (a *attacker) endWhenAnswered(end func()) {
	defer end()
	time.Sleep(a.Duration)
	for deadline := time.Now().Add(extension); time.Now().Before(deadline) && !a.got(a.expected[0]); {
		time.Sleep(100 * time.Millisecond)
	}
}

func (a *attacker) got(code int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.codes[code] > 0
}

const prepared = "prepared"

// count counts a response. It reads the response only if it is the first one with an unexpected code.
func (a *attacker) count(code int, err error, response *http.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes[code]++
	if _, known := a.examples[code]; known || slices.Contains(a.expected, code) {
		return
	}
	switch {
	case err != nil:
		a.examples[code] = err.Error()
	default:
		beginning, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		a.examples[code] = fmt.Sprintf("%s %s: %s", response.Request.Method, response.Request.URL, beginning)
	}
}

// as returns a client of the attacker for another cluster, with its own connections. Its responses are counted.
func (a *attacker) as(c *client) *client {
	return &client{url: c.url, token: c.token, http: a.Target.connections(), answered: a.count}
}

// flood calls f from a number of concurrent clients, each with its own connections, until the context ends or the number of calls reaches
// the limit. Every call gets a different number.
func (a *attacker) flood(ctx context.Context, clients, limit int, f func(ctx context.Context, c *client, i int)) {
	var wait sync.WaitGroup
	var calls atomic.Int64
	for range clients {
		wait.Go(func() {
			c := a.as(a.client)
			for ctx.Err() == nil {
				i := int(calls.Add(1))
				if i > limit {
					return
				}
				f(ctx, c, i)
			}
		})
	}
	wait.Wait()
}

// unbounded is the limit of a flood that stores no objects.
const unbounded = 1 << 30

// together runs floods concurrently.
func together(ctx context.Context, floods ...func(context.Context)) {
	var wait sync.WaitGroup
	for _, f := range floods {
		wait.Go(func() { f(ctx) })
	}
	wait.Wait()
}

// posts sends objects to a path. The responses are counted, and discarded.
func (a *attacker) posts(clients, limit int, path string, object func(i int) string) func(context.Context) {
	return func(ctx context.Context) {
		a.flood(ctx, clients, limit, func(ctx context.Context, c *client, i int) { _, _, _ = c.post(ctx, path, object(i)) })
	}
}

// gets reads paths.
func (a *attacker) gets(clients int, path func(i int) string) func(context.Context) {
	return func(ctx context.Context) {
		a.flood(ctx, clients, unbounded, func(ctx context.Context, c *client, i int) { _, _, _ = c.get(ctx, path(i)) })
	}
}

// watch opens a watch that outlives the attack. If read is false, it does not read the watch, which stalls it. Otherwise it discards the
// events.
func (a *attacker) watch(c *client, path string, read bool) {
	response, err := c.open(a.life, http.MethodGet, path, "", nil)
	if err == nil && read {
		go func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body)
		}()
	}
}
