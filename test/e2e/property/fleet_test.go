package property

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	robot        = "p-robot" // a service account with cluster-admin in its cluster
	fieldManager = "property"
	// lacking is the index modulo five of tenants that do not define widgets. Tenants with remainder 0 have unique schemas; the others
	// share a schema with those of the same remainder.
	lacking = 4
)

// identity is a user or a service account.
type identity struct{ name, token string }

var (
	masters   = identity{kcptest.Masters.Name, kcptest.Masters.Token}
	alice     = identity{kcptest.Alice.Name, kcptest.Alice.Token}
	bob       = identity{kcptest.Bob.Name, kcptest.Bob.Token}
	anonymous = identity{name: kcptest.Anonymous.Name}
)

// tenant is a cluster, and what the test knows about it.
type tenant struct {
	name   string
	index  int
	marker string // starts every value that is stored in it
	schema string // marker in the definition of widgets, empty without one
	robot  identity
	actors []*actor

	// quiet is locked for reading by actors that change something, and for writing by a comparison of the whole cluster.
	quiet sync.RWMutex
}

func (t *tenant) reader(knows ...string) reader {
	return reader{cluster: t.name, markers: []string{t.marker, t.schema}, knows: knows}
}

// administrators are the identities with all permissions in a tenant.
func (t *tenant) administrators() []identity {
	all := []identity{masters, t.robot}
	if t.index%2 == 0 {
		all = append(all, alice)
	}
	return all
}

// viewer reports whether bob can read objects of a kind there.
func (t *tenant) viewer(k *kind) bool {
	return t.index%3 == 0 && k != secretKind && k != widgets && k != clusterRoles
}

// strangers are users without permissions in a tenant.
func (t *tenant) strangers(tenants []*tenant) []identity {
	all := []identity{anonymous, tenants[(t.index+1)%len(tenants)].robot}
	if t.index%2 != 0 {
		all = append(all, alice)
	}
	if t.index%3 != 0 {
		all = append(all, bob)
	}
	return all
}

// serves reports whether a tenant serves a kind.
func (t *tenant) serves(k *kind) bool { return !k.custom || t.schema != "" }

// fleet is all clusters and clients of a test.
type fleet struct {
	secrets *secrets
	tenants []*tenant
	clients []*client
	shards  []*client // one for each shard
	watches []*follower
	// patience limits the time for responses that should come at once.
	patience time.Duration
}

func newMarker(rng *rand.Rand) string {
	return fmt.Sprintf("%s%0*x", markerPrefix, markerDigits, rng.Uint64())
}

// newFleet creates clusters with all that the operations need.
func newFleet(t *testing.T, tenants, clients int, seed uint64, base string) *fleet {
	t.Helper()
	// Markers are secrets: they do not depend on the seed, because two tests must never share one.
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	f := &fleet{secrets: &secrets{}, patience: kcptest.Timeout}
	for range clients {
		c, err := newClient(server.Config(kcptest.Anonymous), base, f.secrets)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.http.CloseIdleConnections)
		f.clients = append(f.clients, c)
	}
	for _, url := range server.ShardURLs() {
		c, err := newClient(server.Config(kcptest.Anonymous), url, f.secrets)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.http.CloseIdleConnections)
		f.shards = append(f.shards, c)
	}
	shared := map[int]string{}
	for i := range tenants {
		n := &tenant{index: i, marker: newMarker(random)}
		switch rest := i % 5; {
		case rest == lacking:
		case rest == 0:
			n.schema = n.marker
		case shared[rest] == "":
			shared[rest] = newMarker(random)
			fallthrough
		default:
			n.schema = shared[rest]
		}
		for j, scope := range append([]string{""}, namespaces...) {
			rng := rand.New(rand.NewPCG(seed, uint64(i*100+j)))
			n.actors = append(n.actors, &actor{fleet: f, tenant: n, scope: scope, rng: rng, model: newModel()})
		}
		f.tenants = append(f.tenants, n)
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i, n := range f.tenants {
		cluster := server.Cluster // creates a cluster and waits until it is ready
		group.Go(func() error {
			n.name = cluster(t).Name
			f.secrets.names.Store(n.name, n)
			return n.prepare(t.Context(), f.clients[i%clients])
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if t.Failed() { // in one of these goroutines
		t.FailNow()
	}
	return f
}

// prepare creates what a tenant has before the operations, and waits until all of it works.
func (t *tenant) prepare(ctx context.Context, c *client) error {
	create := func(path string, object map[string]any) error {
		_, err := c.want(ctx, t, request{method: http.MethodPost, path: path, body: object, as: masters}, http.StatusCreated)
		return err
	}
	named := func(k *kind, namespace, name string, fields map[string]any) error {
		object := map[string]any{"apiVersion": k.apiVersion(), "kind": k.name, "metadata": map[string]any{"name": name}}
		for field, value := range fields {
			object[field] = value
		}
		return create(k.path(namespace), object)
	}
	for _, namespace := range namespaces {
		if err := named(namespaceKind, "", namespace, nil); err != nil {
			return err
		}
	}
	if err := named(resourceQuotas, counted, quotaName, map[string]any{"spec": map[string]any{"hard": quotaHard}}); err != nil {
		return err
	}
	if err := named(serviceAccounts, "default", robot, nil); err != nil {
		return err
	}
	token := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}
	made, err := c.want(ctx, t, request{
		method: http.MethodPost, path: serviceAccounts.path("default") + "/" + robot + "/token", body: token, as: masters,
	}, http.StatusCreated)
	if err != nil {
		return err
	}
	t.robot = identity{"the service account of " + t.name, text(made.object, "status", "token")}
	if err := t.grant(named); err != nil {
		return err
	}
	if t.schema != "" {
		if err := create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(t.schema)); err != nil {
			return err
		}
	}
	return t.wait(ctx, c)
}

// grant binds the identities to their roles.
func (t *tenant) grant(create func(*kind, string, string, map[string]any) error) error {
	user := func(name string) map[string]any {
		return map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}
	}
	bind := func(name, role string, subject map[string]any) error {
		return create(clusterRoleBindings, "", name, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{subject},
		})
	}
	if err := bind("robot", "cluster-admin", map[string]any{"kind": "ServiceAccount", "namespace": "default", "name": robot}); err != nil {
		return err
	}
	if t.index%2 == 0 {
		if err := bind("alice", "cluster-admin", user(alice.name)); err != nil {
			return err
		}
	}
	if t.index%3 != 0 {
		return nil
	}
	if err := bind("bob-enters", kcptest.EntryRole, user(bob.name)); err != nil {
		return err
	}
	return bind("bob-views", "view", user(bob.name))
}

// wait returns when all permissions have taken effect, and all objects exist that the server creates.
func (t *tenant) wait(ctx context.Context, c *client) error {
	readers := t.administrators()
	if t.viewer(configMaps) {
		readers = append(readers, bob)
	}
	for _, who := range readers {
		if err := t.until(ctx, c, request{path: configMaps.path("default"), as: who}, http.StatusOK); err != nil {
			return err
		}
	}
	if t.schema != "" {
		if err := t.until(ctx, c, request{path: widgets.path("default"), as: masters}, http.StatusOK); err != nil {
			return err
		}
	}
	for _, namespace := range namespaces {
		if err := t.populated(ctx, c, namespace); err != nil {
			return err
		}
	}
	return t.checkQuota(ctx, c, map[string]int{"count/configmaps": standing})
}

// populated returns when a new namespace has the objects that the server creates in each.
func (t *tenant) populated(ctx context.Context, c *client, namespace string) error {
	for _, path := range []string{configMaps.path(namespace) + "/kube-root-ca.crt", serviceAccounts.path(namespace) + "/default"} {
		if err := t.until(ctx, c, request{path: path, as: masters}, http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}
