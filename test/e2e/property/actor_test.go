package property

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
)

// actor performs operations on one scope of a tenant, one after another. A scope is a namespace, or the cluster-scoped objects. Its
// operations depend only on the seed.
type actor struct {
	*fleet
	tenant *tenant
	scope  string
	rng    *rand.Rand
	model  *model
	client *client // of the current operation
	values int
}

// operation is an operation that an actor performs and checks.
type operation struct {
	name   string
	weight int
	run    func(*actor, context.Context, *kind) error
}

var operations = []operation{
	{"create", 14, (*actor).create},
	{"create with a generated name", 3, (*actor).generate},
	{"get", 10, (*actor).get},
	{"update", 10, (*actor).update},
	{"patch", 16, (*actor).patch},
	{"apply", 8, (*actor).apply},
	{"change the status", 3, (*actor).changeStatus},
	{"delete", 9, (*actor).delete},
	{"delete a collection", 2, (*actor).deleteCollection},
	{"list", 10, (*actor).list},
	{"list in pages", 6, (*actor).listPages},
	{"list in all namespaces", 2, (*actor).listEverything},
	{"watch from a version", 4, (*actor).watchFromVersion},
	{"watch with initial events", 4, (*actor).watchFromStart},
	{"act without permissions", 8, (*actor).actAsStranger},
	{"forge the cluster", 4, (*actor).forgeCluster},
	{"continue a list of another cluster", 3, (*actor).continueForeignList},
	{"review a token", 2, (*actor).reviewToken},
	{"discover", 3, (*actor).discover},
	{"empty the namespace", 1, (*actor).emptyNamespace},
}

// act performs the next operation, and returns an error if its result is wrong.
func (a *actor) act(ctx context.Context, c *client) error {
	a.client = c
	k := a.kind()
	op := a.operation()
	if op.name != "list in all namespaces" { // this waits until no other actor is working
		a.tenant.quiet.RLock()
		defer a.tenant.quiet.RUnlock()
	}
	var err error
	if a.tenant.serves(k) {
		err = op.run(a, ctx, k)
	} else {
		err = a.missing(ctx, k)
	}
	if err != nil {
		return fmt.Errorf("tenant %d (%s), scope %q: %s of %s: %w", a.tenant.index, a.tenant.name, a.scope, op.name, k.plural, err)
	}
	return nil
}

func (a *actor) kind() *kind {
	kinds := namespacedKinds
	if a.scope == "" {
		kinds = clusterKinds
	}
	return kinds[a.rng.IntN(len(kinds))]
}

func (a *actor) operation() operation {
	total := 0
	for _, op := range operations {
		total += op.weight
	}
	n := a.rng.IntN(total)
	for _, op := range operations {
		if n -= op.weight; n < 0 {
			return op
		}
	}
	panic("the weights do not add up")
}

// likely returns true in percent of 100 calls.
func (a *actor) likely(percent int) bool { return a.rng.IntN(100) < percent }

func (a *actor) color() string { return []string{"red", "green", "blue"}[a.rng.IntN(3)] }

// name returns one of a few names, which all tenants use.
func (a *actor) name() string { return fmt.Sprintf("p-%d", a.rng.IntN(6)) }

// existing usually returns an existing object.
func (a *actor) existing(k *kind) id {
	names := a.model.names(k)
	if len(names) == 0 || a.likely(15) {
		return a.id(k, a.name())
	}
	return a.id(k, names[a.rng.IntN(len(names))])
}

func (a *actor) id(k *kind, name string) id { return id{k, a.namespace(k), name} }

func (a *actor) namespace(k *kind) string {
	if k.namespaced {
		return a.scope
	}
	return ""
}

// fresh returns a state that no object has had.
func (a *actor) fresh() state {
	a.values++
	return state{value: fmt.Sprintf("%s-%s.%d", a.tenant.marker, or(a.scope, "cluster"), a.values), color: a.color()}
}

func (a *actor) administrator() identity {
	all := a.tenant.administrators()
	return all[a.rng.IntN(len(all))]
}

// whoReads returns an identity that can read objects of a kind.
func (a *actor) whoReads(k *kind) identity {
	if a.tenant.viewer(k) && a.likely(40) {
		return bob
	}
	return a.administrator()
}

// other returns another tenant.
func (a *actor) other() *tenant {
	step := 1 + a.rng.IntN(len(a.tenants)-1)
	return a.tenants[(a.tenant.index+step)%len(a.tenants)]
}

func (a *actor) path(k *kind) string { return k.path(a.scope) }

// ask sends a request, whose response must have one of the codes.
func (a *actor) ask(ctx context.Context, r request, codes ...int) (answer, error) {
	return a.client.want(ctx, a.tenant, r, codes...)
}

// dry returns the query of a request that may be a dry run, and whether it is one.
func (a *actor) dry(query url.Values) (url.Values, bool) {
	if query == nil {
		query = url.Values{}
	}
	dry := a.likely(12)
	if dry {
		query.Set("dryRun", "All")
	}
	return query, dry
}

// stored compares the response to a write with the wanted state, and records it unless the write was a dry run.
func (a *actor) stored(got answer, wanted id, s state, dry bool) error {
	found, now, err := wanted.kind.parse(a.tenant.name, got.object)
	if err != nil {
		return err
	}
	if wanted.name == "" && strings.HasPrefix(found.name, generatedPrefix) {
		wanted.name = found.name
	}
	before, existed := a.model.objects[wanted]
	s.uid, s.version = before.uid, ""
	if err := compareObjects(map[id]state{wanted: s}, map[id]state{found: now}); err != nil {
		return err
	}
	if wanted.kind.custom && text(got.object, "spec", "origin") != a.tenant.schema {
		return fmt.Errorf("%s has the default %q of another schema", wanted, text(got.object, "spec", "origin"))
	}
	if !dry {
		if now.version == "" || now.uid == "" || (existed && now.version == before.version) {
			return fmt.Errorf("%s has uid %q and version %q after %+v", wanted, now.uid, now.version, before)
		}
		a.model.set(wanted, now)
	}
	return nil
}

// missing checks that requests for a resource that the tenant does not have, but others do, return no information.
func (a *actor) missing(ctx context.Context, k *kind) error {
	for _, r := range []request{
		{method: http.MethodGet, path: a.path(k)},
		{method: http.MethodGet, path: a.path(k) + "/" + a.name()},
		{method: http.MethodPost, path: a.path(k), body: k.object(a.id(k, a.name()), a.fresh())},
		{method: http.MethodDelete, path: a.path(k)},
		{method: http.MethodGet, path: a.path(k), query: url.Values{"watch": {"true"}}},
	} {
		ctx, cancel := context.WithTimeout(ctx, a.patience) // a watch that is not refused would not end
		defer cancel()
		r.as = a.administrator()
		if _, err := a.ask(ctx, r, http.StatusNotFound); err != nil {
			return err
		}
	}
	return nil
}
