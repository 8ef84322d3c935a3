package property

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// stream is an open watch.
type stream struct {
	tenant  *tenant
	kind    *kind
	secrets *secrets
	// namespace is the watched namespace, or empty for all.
	namespace string

	response *http.Response
	decoder  *json.Decoder
	cancel   context.CancelFunc
}

// watch starts a watch. The caller must close it.
func (c *client) watch(ctx context.Context, t *tenant, k *kind, namespace string, query url.Values, as identity) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	query.Set("watch", "true")
	r := request{method: http.MethodGet, path: k.path(namespace), query: query, as: as}
	response, err := c.open(ctx, t, r)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{t, k, c.secrets, namespace, response, json.NewDecoder(response.Body), cancel}
	if found := c.secrets.foreign(t.reader(), response.Header, nil); len(found) > 0 {
		s.close()
		return nil, leak{found, "the header of a watch"}
	}
	if response.StatusCode != http.StatusOK {
		s.close()
		return nil, fmt.Errorf("%s as %s: %s", r, as.name, response.Status)
	}
	return s, nil
}

func (s *stream) close() {
	s.cancel()
	_ = s.response.Body.Close()
}

// next returns the next event of an object that the test created. For a bookmark it returns only the type, and whether it ends the
// initial events.
func (s *stream) next() (e event, initialEnd bool, err error) {
	for {
		var raw json.RawMessage
		if err := s.decoder.Decode(&raw); err != nil {
			return e, false, fmt.Errorf("the watch ended: %w", err)
		}
		if found := s.secrets.foreign(s.tenant.reader(), nil, raw); len(found) > 0 {
			return e, false, leak{found, string(raw)}
		}
		var got struct {
			Type   string
			Object map[string]any
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			return e, false, err
		}
		switch got.Type {
		case bookmark:
			e.event = bookmark
			return e, text(got.Object, "metadata", "annotations", "k8s.io/initial-events-end") == "true", nil
		case added, modified, deleted:
		default:
			return e, false, fmt.Errorf("the watch delivered %s", raw)
		}
		e.event = got.Type
		if e.id, e.state, err = s.kind.parse(s.tenant.name, got.Object); err != nil {
			return e, false, err
		}
		if s.kind.namespaced && s.namespace != "" && e.id.namespace != s.namespace {
			return e, false, fmt.Errorf("a watch of the namespace %s delivered %s", s.namespace, e.id)
		}
		e.terminating = s.kind == namespaceKind && text(got.Object, "metadata", "deletionTimestamp") != ""
		if !s.kind.isSystem(e.id.name) {
			return e, false, nil
		}
	}
}

// upTo returns the events up to and including the one with a state, which must be the last one.
func (s *stream) upTo(last id, version string) ([]event, error) {
	var all []event
	for {
		e, _, err := s.next()
		if err != nil {
			return nil, fmt.Errorf("%w before %s at %s; it delivered %+v", err, last, version, all)
		}
		if e.event == bookmark {
			continue
		}
		all = append(all, e)
		if e.id == last && e.state.version == version {
			return all, nil
		}
	}
}

// sentinel makes a last change that a watch with a selector delivers.
func (a *actor) sentinel(ctx context.Context, k *kind, which selector) (id, string, error) {
	s := a.fresh()
	s.color = or(which.color, s.color)
	last := a.id(k, or(which.name, "p-0"))
	err := a.applyState(ctx, last, s, masters, false)
	return last, a.model.objects[last].version, err
}

// watchFromVersion starts a watch at a change in the past, and expects the changes since then.
func (a *actor) watchFromVersion(ctx context.Context, k *kind) error {
	from := -1
	for i := len(a.model.history) - 1 - a.rng.IntN(20); i >= 0; i-- {
		if a.model.history[i].state.version != "" {
			from = i
			break
		}
	}
	if from < 0 {
		return a.watchFromStart(ctx, k)
	}
	which, query := a.choose(k)
	query.Set("resourceVersion", a.model.history[from].state.version)
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	before := a.likely(50) // whether the watch starts before the last change
	var last id
	var version string
	var err error
	if !before {
		if last, version, err = a.sentinel(ctx, k, which); err != nil {
			return err
		}
	}
	w, err := a.client.watch(ctx, a.tenant, k, a.scope, query, a.whoReads(k))
	if err != nil {
		return err
	}
	defer w.close()
	if before {
		if last, version, err = a.sentinel(ctx, k, which); err != nil {
			return err
		}
	}
	got, err := w.upTo(last, version)
	if err != nil {
		return err
	}
	return compareEvents(a.model.since(from+1, k, which), got)
}

// watchFromStart gets all objects first, and then their changes.
func (a *actor) watchFromStart(ctx context.Context, k *kind) error {
	which, query := a.choose(k)
	for name, value := range map[string]string{
		"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true", "resourceVersion": "",
	} {
		query.Set(name, value)
	}
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	w, err := a.client.watch(ctx, a.tenant, k, a.scope, query, a.whoReads(k))
	if err != nil {
		return err
	}
	defer w.close()
	initial := map[id]state{}
	for {
		e, end, err := w.next()
		if err != nil {
			return err
		}
		if end {
			break
		}
		if _, twice := initial[e.id]; e.event != added || twice {
			return fmt.Errorf("the initial events contain %+v", e)
		}
		initial[e.id] = e.state
	}
	if err := compareObjects(a.model.selected(k, which), initial); err != nil {
		return fmt.Errorf("initial events: %w", err)
	}
	from := len(a.model.history)
	last, version, err := a.sentinel(ctx, k, which)
	if err != nil {
		return err
	}
	got, err := w.upTo(last, version)
	if err != nil {
		return err
	}
	return compareEvents(a.model.since(from, k, which), got)
}
