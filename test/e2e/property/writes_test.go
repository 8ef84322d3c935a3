package property

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

const generatedPrefix = "p-gen-"

func (a *actor) create(ctx context.Context, k *kind) error {
	wanted, s := a.id(k, a.name()), a.fresh()
	query, dry := a.dry(nil)
	r := request{method: http.MethodPost, path: a.path(k), query: query, body: k.object(wanted, s), as: a.administrator()}
	if _, exists := a.model.objects[wanted]; exists {
		return a.refused(ctx, r, http.StatusConflict, "AlreadyExists")
	}
	got, err := a.ask(ctx, r, http.StatusCreated)
	if err != nil {
		return err
	}
	return a.settle(ctx, a.stored(got, wanted, s, dry), wanted, dry)
}

func (a *actor) generate(ctx context.Context, k *kind) error {
	wanted, s := a.id(k, ""), a.fresh()
	body := k.object(wanted, s)
	body["metadata"].(map[string]any)["generateName"] = generatedPrefix
	query, dry := a.dry(nil)
	got, err := a.ask(ctx, request{method: http.MethodPost, path: a.path(k), query: query, body: body, as: a.administrator()}, http.StatusCreated)
	if err != nil {
		return err
	}
	return a.settle(ctx, a.stored(got, wanted, s, dry), a.id(k, text(got.object, "metadata", "name")), dry)
}

// settle waits, after a namespace was created, until the server has created its objects. Otherwise they could appear during deletion.
func (a *actor) settle(ctx context.Context, err error, made id, dry bool) error {
	if err != nil || dry || made.kind != namespaceKind {
		return err
	}
	return a.tenant.populated(ctx, a.client, made.name)
}

func (a *actor) update(ctx context.Context, k *kind) error {
	wanted, s := a.existing(k), a.fresh()
	before, exists := a.model.objects[wanted]
	s.note = before.note
	body := k.object(wanted, s)
	query, dry := a.dry(nil)
	r := request{method: http.MethodPut, path: a.path(k) + "/" + wanted.name, query: query, body: body, as: a.administrator()}
	metadata := body["metadata"].(map[string]any)
	switch {
	case exists && a.likely(15):
		metadata["resourceVersion"] = "1"
		return a.refused(ctx, r, http.StatusConflict, "Conflict")
	case exists:
		metadata["resourceVersion"] = before.version
	case !k.createdByPut:
		return a.refused(ctx, r, http.StatusNotFound, "NotFound")
	}
	got, err := a.ask(ctx, r, code(exists))
	if err != nil {
		return err
	}
	return a.stored(got, wanted, s, dry)
}

func code(existed bool) int {
	if existed {
		return http.StatusOK
	}
	return http.StatusCreated
}

func (a *actor) patch(ctx context.Context, k *kind) error {
	wanted, s := a.existing(k), a.fresh()
	before, exists := a.model.objects[wanted]
	s.note = before.note
	query, dry := a.dry(nil)
	r := request{method: http.MethodPatch, path: a.path(k) + "/" + wanted.name, query: query, as: a.administrator()}
	merge := k.object(id{kind: k, namespace: wanted.namespace}, s)
	switch a.rng.IntN(3) {
	case 0:
		r.contentType, r.body = "application/json-patch+json", jsonPatch(k, wanted.namespace, s)
	case 1:
		r.contentType, r.body = "application/merge-patch+json", merge
	default:
		r.contentType, r.body = "application/strategic-merge-patch+json", merge
		if k.custom {
			return a.refused(ctx, r, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}
	}
	if !exists {
		return a.refused(ctx, r, http.StatusNotFound, "NotFound")
	}
	got, err := a.ask(ctx, r, http.StatusOK)
	if err != nil {
		return err
	}
	return a.stored(got, wanted, s, dry)
}

func jsonPatch(k *kind, namespace string, s state) []any {
	add := func(value any, path ...string) any {
		return map[string]any{"op": "add", "path": pointer(path...), "value": value}
	}
	operations := []any{add(s.value, "metadata", "annotations", valueAnnotation), add(s.color, "metadata", "labels", colorLabel)}
	for field, value := range k.fields(namespace, s.value) {
		operations = append(operations, add(value, field))
	}
	return operations
}

func (a *actor) apply(ctx context.Context, k *kind) error {
	return a.applyState(ctx, a.existing(k), a.fresh(), a.administrator(), true)
}

// applyState gives an object a state, whether it exists or not.
func (a *actor) applyState(ctx context.Context, wanted id, s state, as identity, mayBeDry bool) error {
	before, exists := a.model.objects[wanted]
	s.note = before.note
	query, dry := url.Values{"fieldManager": {fieldManager}, "force": {"true"}}, false
	if mayBeDry {
		query, dry = a.dry(query)
	}
	got, err := a.ask(ctx, request{
		method: http.MethodPatch, path: a.path(wanted.kind) + "/" + wanted.name, query: query, contentType: "application/apply-patch+yaml",
		body: wanted.kind.object(wanted, s), as: as,
	}, code(exists))
	if err != nil {
		return err
	}
	err = a.stored(got, wanted, s, dry)
	if exists {
		return err
	}
	return a.settle(ctx, err, wanted, dry)
}

func (a *actor) changeStatus(ctx context.Context, k *kind) error {
	if !k.custom {
		return a.patch(ctx, k)
	}
	wanted := a.existing(k)
	s, exists := a.model.objects[wanted]
	s.note = a.fresh().value
	query, dry := a.dry(nil)
	// A request to the status must not change the rest.
	r := request{
		method: http.MethodPatch, path: a.path(k) + "/" + wanted.name + "/status", query: query, contentType: "application/merge-patch+json",
		body: map[string]any{"status": map[string]any{"note": s.note}, "spec": map[string]any{"value": "ignored"}}, as: a.administrator(),
	}
	if exists && a.likely(50) {
		body := k.object(wanted, state{value: s.value, color: s.color})
		body["metadata"].(map[string]any)["resourceVersion"] = s.version
		body["status"], body["spec"] = map[string]any{"note": s.note}, map[string]any{"value": "ignored"}
		r.method, r.contentType, r.body = http.MethodPut, "", body
	}
	if !exists {
		return a.refused(ctx, r, http.StatusNotFound, "NotFound")
	}
	got, err := a.ask(ctx, r, http.StatusOK)
	if err != nil {
		return err
	}
	return a.stored(got, wanted, s, dry)
}

func (a *actor) delete(ctx context.Context, k *kind) error {
	wanted := a.existing(k)
	_, exists := a.model.objects[wanted]
	query, dry := a.dry(nil)
	r := request{method: http.MethodDelete, path: a.path(k) + "/" + wanted.name, query: query, as: a.administrator()}
	if !exists {
		return a.refused(ctx, r, http.StatusNotFound, "NotFound")
	}
	if a.likely(15) {
		r.body = map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": "00000000-0000-0000-0000-000000000000"},
		}
		return a.refused(ctx, r, http.StatusConflict, "Conflict")
	}
	if _, err := a.ask(ctx, r, http.StatusOK); err != nil || dry {
		return err
	}
	if k == namespaceKind {
		if err := a.gone(ctx, k, wanted.name); err != nil {
			return err
		}
	}
	a.model.remove(wanted)
	return nil
}

// gone waits until an object that is not deleted at once does not exist any more.
func (a *actor) gone(ctx context.Context, k *kind, name string) error {
	return a.tenant.until(ctx, a.client, request{path: k.path(a.scope) + "/" + name, as: masters}, http.StatusNotFound)
}

func (a *actor) deleteCollection(ctx context.Context, k *kind) error {
	color := a.color()
	query, dry := a.dry(url.Values{"labelSelector": {colorLabel + "=" + color}})
	r := request{method: http.MethodDelete, path: a.path(k), query: query, as: a.administrator()}
	if k == namespaceKind { // namespaces can only be deleted one by one
		return a.refused(ctx, r, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
	if _, err := a.ask(ctx, r, http.StatusOK); err != nil || dry {
		return err
	}
	for i := range a.model.selected(k, selector{color: color}) {
		a.model.remove(i)
	}
	return nil
}

// emptyNamespace deletes the namespace with its content, and creates it again.
func (a *actor) emptyNamespace(ctx context.Context, k *kind) error {
	if a.scope == "" || a.scope == counted {
		return a.get(ctx, k)
	}
	path := namespaceKind.path("")
	if _, err := a.ask(ctx, request{method: http.MethodDelete, path: path + "/" + a.scope, as: a.administrator()}, http.StatusOK); err != nil {
		return err
	}
	if err := a.tenant.until(ctx, a.client, request{path: path + "/" + a.scope, as: masters}, http.StatusNotFound); err != nil {
		return err
	}
	for i := range a.model.objects {
		a.model.remove(i)
	}
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": a.scope}}
	if _, err := a.ask(ctx, request{method: http.MethodPost, path: path, body: body, as: masters}, http.StatusCreated); err != nil {
		return err
	}
	return a.tenant.populated(ctx, a.client, a.scope)
}

// refused checks that a request gets a Status with a reason and a message.
func (a *actor) refused(ctx context.Context, r request, code int, reason string) error {
	got, err := a.ask(ctx, r, code)
	if err != nil {
		return err
	}
	if text(got.object, "kind") != "Status" || text(got.object, "reason") != reason || text(got.object, "message") == "" {
		return fmt.Errorf("%s: want a Status of reason %s, got %s", r, reason, got)
	}
	return nil
}
