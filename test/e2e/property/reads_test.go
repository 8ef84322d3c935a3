package property

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Formats other than JSON in which clients request objects.
const (
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetaList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

func (a *actor) get(ctx context.Context, k *kind) error {
	wanted := a.existing(k)
	s, exists := a.model.objects[wanted]
	r := request{method: http.MethodGet, path: a.path(k) + "/" + wanted.name, as: a.whoReads(k)}
	if !exists {
		return a.refused(ctx, r, http.StatusNotFound, "NotFound")
	}
	if a.likely(30) {
		forms := []string{asTable, asMetadata, asYAML, asProtobuf}
		r.accept = forms[a.rng.IntN(len(forms))] + ",application/json"
		got, err := a.ask(ctx, r, http.StatusOK)
		if err != nil {
			return err
		}
		if markers := markersIn(got.body); len(markers) == 0 {
			return fmt.Errorf("%s as %s does not contain its value: %s", wanted, r.accept, got)
		}
		return nil
	}
	got, err := a.ask(ctx, r, http.StatusOK)
	if err != nil {
		return err
	}
	found, now, err := k.parse(a.tenant.name, got.object)
	if err != nil {
		return err
	}
	return compareObjects(map[id]state{wanted: s}, map[id]state{found: now})
}

// read collects the objects of lists that the test created.
func (a *actor) read(k *kind, got answer, into map[id]state) error {
	for _, item := range got.items() {
		object, _ := item.(map[string]any)
		found, s, err := k.parse(a.tenant.name, object)
		if err != nil {
			return err
		}
		if !k.isSystem(found.name) {
			into[found] = s
		}
	}
	return nil
}

// choose returns a random selector, and the query of a list with it.
func (a *actor) choose(k *kind) (selector, url.Values) {
	switch a.rng.IntN(4) {
	case 0:
		s := selector{color: a.color()}
		return s, url.Values{"labelSelector": {colorLabel + "=" + s.color}}
	case 1:
		s := selector{name: a.existing(k).name}
		return s, url.Values{"fieldSelector": {"metadata.name=" + s.name}}
	case 2:
		s := selector{name: a.existing(k).name, color: a.color()}
		return s, url.Values{"fieldSelector": {"metadata.name=" + s.name}, "labelSelector": {colorLabel + " in (" + s.color + ")"}}
	default:
		return selector{}, url.Values{}
	}
}

func (a *actor) list(ctx context.Context, k *kind) error {
	which, query := a.choose(k)
	want := a.model.selected(k, which)
	r := request{method: http.MethodGet, path: a.path(k), query: query, as: a.whoReads(k)}
	switch a.rng.IntN(5) {
	case 0:
		query.Set("resourceVersion", "0")
	case 1:
		r.accept = asTable
		got, err := a.ask(ctx, r, http.StatusOK)
		if err != nil {
			return err
		}
		return compareRows(k, want, got)
	case 2:
		r.accept = asMetaList
		got, err := a.ask(ctx, r, http.StatusOK)
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for _, item := range got.items() {
			names[text(item, "metadata", "name")] = true
		}
		return compareNames(k, want, names)
	}
	got, err := a.ask(ctx, r, http.StatusOK)
	if err != nil {
		return err
	}
	found := map[id]state{}
	if err := a.read(k, got, found); err != nil {
		return err
	}
	return compareObjects(want, found)
}

func compareRows(k *kind, want map[id]state, got answer) error {
	rows, _ := got.object["rows"].([]any)
	names := map[string]bool{}
	for _, row := range rows {
		names[text(row, "cells", "0")] = true
	}
	if k == events { // the first column is the age
		names = map[string]bool{}
		for _, row := range rows {
			names[text(row, "object", "metadata", "name")] = true
		}
	}
	return compareNames(k, want, names)
}

func compareNames(k *kind, want map[id]state, got map[string]bool) error {
	for i := range want {
		if !got[i.name] {
			return fmt.Errorf("%s is missing among %v", i, got)
		}
		delete(got, i.name)
	}
	for name := range got {
		if !k.isSystem(name) {
			return fmt.Errorf("%s %s exists, and the model does not have it", k.plural, name)
		}
	}
	return nil
}

// listPages reads a list in pages. Together they must be the whole list, and each page must have the number of remaining items.
func (a *actor) listPages(ctx context.Context, k *kind) error {
	which, query := selector{}, url.Values{}
	if a.likely(30) {
		which, query = a.choose(k)
	}
	query.Set("limit", strconv.Itoa(1+a.rng.IntN(4)))
	found, seen := map[id]state{}, 0
	var left []int // remaining items according to each page, plus the items up to it
	for {
		got, err := a.ask(ctx, request{method: http.MethodGet, path: a.path(k), query: query, as: a.whoReads(k)}, http.StatusOK)
		if err != nil {
			return err
		}
		if err := a.read(k, got, found); err != nil {
			return err
		}
		seen += len(got.items())
		metadata, _ := got.object["metadata"].(map[string]any)
		if remaining, tells := metadata["remainingItemCount"].(float64); tells {
			left = append(left, seen+int(remaining))
		}
		next := text(metadata, "continue")
		if next == "" {
			break
		}
		query.Set("continue", next)
	}
	for _, total := range left {
		if total != seen {
			return fmt.Errorf("a page of the list reports %d items in total, want %d", total, seen)
		}
	}
	return compareObjects(a.model.selected(k, which), found)
}

// listEverything compares the list of all namespaces with the models of all actors of the tenant.
func (a *actor) listEverything(ctx context.Context, k *kind) error {
	a.tenant.quiet.Lock()
	defer a.tenant.quiet.Unlock()
	return a.compareAll(ctx, k)
}

// compareAll must be called while no actor of the tenant works.
func (a *actor) compareAll(ctx context.Context, k *kind) error {
	which, query := a.choose(k)
	want := map[id]state{}
	for _, other := range a.tenant.actors {
		for i, s := range other.model.selected(k, which) {
			want[i] = s
		}
	}
	got, err := a.ask(ctx, request{method: http.MethodGet, path: k.path(""), query: query, as: a.whoReads(k)}, http.StatusOK)
	if err != nil {
		return err
	}
	found := map[id]state{}
	if err := a.read(k, got, found); err != nil {
		return err
	}
	return compareObjects(want, found)
}
