package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// objectsEach is the number of objects of every consumer of an export.
	objectsEach = 10
	// page is the limit of one list.
	page = 500
	// listings is the minimum number of lists on each server, and listTime the minimum duration.
	listings, listTime = 5, 10 * time.Second
	// changes is the number of measured events.
	changes = 4000
)

// followed is a server, with a client that lists and watches its objects.
type followed struct {
	*process
	client  dynamic.Interface
	version string // of the last list

	filled, peak memory // with all objects, and the peak while they are listed
	lists        []load
	one, many    load
}

// follow creates the objects of all consumers, and lists and watches them as the provider does.
func (s *sharing) follow(ctx context.Context) error {
	view := rest.CopyConfig(s.kcp.config)
	view.Host += "/services/apiexport/provider/" + api(0) + "/clusters/*"
	ours, err := dynamic.NewForConfigAndClient(view, s.kcp.connections[0])
	if err != nil {
		return err
	}
	if err := s.vanilla.define(ctx, "", widgets.Resource, 0); err != nil {
		return err
	}
	theirs, err := s.vanilla.dynamic("", 0)
	if err != nil {
		return err
	}
	both := []*followed{{process: s.kcp, client: ours}, {process: s.vanilla, client: theirs}}
	for _, f := range both {
		progress("creating %d objects on %s", s.n*objectsEach, f.name)
		if _, err := count(ctx, makers, s.n, func(ctx context.Context, c, i int) error { return f.fill(ctx, c, consumer(i)) }); err != nil {
			return err
		}
		if f.filled, err = f.memory(ctx); err != nil {
			return err
		}
	}
	progress("listing")
	for begin, rounds := time.Now(), 0; rounds < listings || time.Since(begin) < listTime*2; rounds++ {
		for _, f := range both {
			if err := s.list(ctx, f); err != nil {
				return err
			}
		}
	}
	for _, f := range both {
		if err := s.profileList(ctx, f); err != nil {
			return err
		}
	}
	for _, f := range both {
		progress("watching on %s", f.name)
		if f.one, err = f.changeAndHear(ctx, s.n, 1); err != nil {
			return err
		}
		if f.many, err = f.changeAndHear(ctx, s.n, makers); err != nil {
			return err
		}
	}
	s.addFollowed(both[0], both[1])
	return nil
}

// addFollowed adds the rows of what both servers took.
func (s *sharing) addFollowed(ours, theirs *followed) {
	what := fmt.Sprintf("the %d objects of %d consumers", s.n*objectsEach, s.n)
	memory := func(what string, of func(*followed) float64) row {
		return row{What: what, Unit: "MiB", Ours: of(ours) / (1 << 20), Vanilla: of(theirs) / (1 << 20)}
	}
	s.add(
		throughputRow(
			"list "+what+fmt.Sprintf(" in pages of %d (objects a second)", page),
			"1/s",
			median(ours.lists),
			median(theirs.lists),
			0.8,
		),
		throughputRow("watch "+what+" while 1 client changes them (events a second)", "1/s", ours.one, theirs.one, 0.8),
		throughputRow(
			"watch "+what+fmt.Sprintf(" while %d clients change them (events a second)", makers),
			"1/s",
			ours.many,
			theirs.many,
			0.8,
		),
		memory("heap of the server with "+what, func(f *followed) float64 { return f.filled.heap }),
		memory("resident memory with "+what+", with etcd", func(f *followed) float64 { return f.filled.resident }),
		memory("the most while they are listed", func(f *followed) float64 { return f.peak.resident }),
	)
}

// fill creates the objects of one consumer.
func (p *process) fill(ctx context.Context, connection int, name string) error {
	if p.cluster("") == "" {
		_, err := p.send(
			ctx,
			connection,
			http.MethodPost,
			"/api/v1/namespaces",
			map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
		)
		if err != nil {
			return err
		}
	}
	for i := range objectsEach {
		_, err := p.send(ctx, connection, http.MethodPost, p.widgetsOf(name), map[string]any{
			"apiVersion": widgets.GroupVersion().String(),
			"kind":       "Kwidget",
			"metadata":   map[string]any{"name": fmt.Sprintf("widget-%d", i)},
			"spec":       map[string]any{"field0": "x"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// widgetsOf returns the path of a consumer's objects.
func (p *process) widgetsOf(consumer string) string {
	base, namespace := p.cluster(consumer), "default"
	if base == "" {
		namespace = consumer
	}
	return base + "/apis/" + widgets.GroupVersion().String() + "/namespaces/" + namespace + "/widgets"
}

// list lists all objects in pages.
func (s *sharing) list(ctx context.Context, f *followed) error {
	l, err := measured(f.process, func() (load, error) {
		begin, listed, options := time.Now(), 0, metav1.ListOptions{Limit: page}
		var took []time.Duration
		for {
			one := time.Now()
			list, err := f.client.Resource(widgets).List(ctx, options)
			if err != nil {
				return load{}, err
			}
			took = append(took, time.Since(one))
			f.peak.resident = max(f.peak.resident, f.resident())
			listed, f.version = listed+len(list.Items), list.GetResourceVersion()
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
		if listed != s.n*objectsEach {
			return load{}, fmt.Errorf("%s: listed %d objects", f.name, listed)
		}
		l := summarize(took, time.Since(begin))
		l.perSecond = float64(listed) / time.Since(begin).Seconds()
		return l, nil
	})
	f.lists = append(f.lists, l)
	return err
}

// profileList profiles lists, if profiles are requested.
func (s *sharing) profileList(ctx context.Context, f *followed) error {
	if s.profiles == "" {
		return nil
	}
	unmeasured := *f
	return f.profile(ctx, s.profiles, "list", listTime, func() error {
		for begin := time.Now(); time.Since(begin) < listTime; {
			if err := s.list(ctx, &unmeasured); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeAndHear changes objects of consumers, and measures when the provider receives the events.
func (f *followed) changeAndHear(ctx context.Context, n, writers int) (load, error) {
	watching, err := f.client.Resource(widgets).Watch(ctx, metav1.ListOptions{ResourceVersion: f.version})
	if err != nil {
		return load{}, err
	}
	defer watching.Stop()
	var mu sync.Mutex
	sent := map[string]time.Time{}
	heard := make(chan struct{})
	var took []time.Duration
	go func() {
		defer close(heard)
		for event := range watching.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			mark, _, _ := unstructured.NestedString(object.Object, "spec", "field1")
			mu.Lock()
			if at, ok := sent[mark]; ok {
				took = append(took, time.Since(at))
			}
			mu.Unlock()
			if f.version = object.GetResourceVersion(); len(took) == changes {
				return
			}
		}
	}()
	l, err := measured(f.process, func() (load, error) {
		begin := time.Now()
		_, err := count(ctx, writers, changes, func(ctx context.Context, c, i int) error {
			mark := fmt.Sprintf("change-%d-%d", writers, i)
			mu.Lock()
			sent[mark] = time.Now()
			mu.Unlock()
			path := f.widgetsOf(consumer(i%n)) + fmt.Sprintf("/widget-%d", i/n%objectsEach)
			status, answer, err := f.do(ctx, 1+c%(connections-1), http.MethodPatch, path, `{"spec":{"field1":"`+mark+`"}}`)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%s: %d %s", path, status, answer)
			}
			return err
		})
		if err != nil {
			return load{}, err
		}
		select {
		case <-heard:
		case <-time.After(time.Minute):
			return load{}, fmt.Errorf("%s: the watch did not deliver all changes", f.name)
		}
		return summarize(took, time.Since(begin)), nil
	})
	if err == nil && len(took) < changes {
		err = fmt.Errorf("%s: the watch ended after %d of %d changes", f.name, len(took), changes)
	}
	return l, err
}
