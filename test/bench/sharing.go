package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// objectsEach are the objects of every consumer of an export.
	objectsEach = 10
	// sampled are how many are timed one after the other.
	sampled = 50
	// page is the limit of one list.
	page = 500
)

// consumer returns the name of a logical cluster that binds the export, or of a namespace of the vanilla server.
func consumer(i int) string { return fmt.Sprintf("consumer-%d", i) }

// runSharing measures what it costs to share one API with n logical clusters, and to follow their objects, beside a vanilla server
// with as many namespaces.
func runSharing(ctx context.Context, n int) error {
	bin, dir, err := prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kcp, err := startKCP(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return err
	}
	defer kcp.stop()
	vanilla, err := startVanilla(ctx, bin, filepath.Join(dir, "vanilla"))
	if err != nil {
		return err
	}
	defer vanilla.stop()
	rows, err := bindAll(ctx, kcp, n)
	if err != nil {
		return err
	}
	more, err := followAll(ctx, kcp, vanilla, n)
	if err != nil {
		return err
	}
	printTable(os.Stdout, append(rows, more...))
	return nil
}

// send sends a request that must succeed; what is there already is fine.
func (p *process) send(ctx context.Context, connection int, method, path string, body any) ([]byte, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	status, answer, err := p.do(ctx, connection, method, path, string(content))
	if err == nil && status >= 300 && status != http.StatusConflict {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	return answer, err
}

// exportWidgets makes the provider.
func exportWidgets(ctx context.Context, p *process) error {
	if err := p.logicalCluster(ctx, "provider", 0); ignoreExists(err) != nil {
		return err
	}
	crd := definition("widgets").Object["spec"].(map[string]any)
	version := crd["versions"].([]any)[0].(map[string]any)
	version["schema"] = version["schema"].(map[string]any)["openAPIV3Schema"]
	name := "v1.widgets." + widgets.Group
	base := "/clusters/provider/apis/apis.kcp.io/"
	_, err := p.send(ctx, 0, http.MethodPost, base+"v1alpha1/apiresourceschemas", map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": map[string]any{"name": name}, "spec": crd,
	})
	if err != nil {
		return err
	}
	_, err = p.send(ctx, 0, http.MethodPost, base+"v1alpha2/apiexports", map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": map[string]any{"name": "widgets"},
		"spec": map[string]any{"resources": []any{map[string]any{"group": widgets.Group, "name": "widgets", "schema": name, "storage": map[string]any{"crd": map[string]any{}}}}},
	})
	return err
}

// bindWidgets binds the export in a consumer.
func bindWidgets(ctx context.Context, p *process, connection int, name string) error {
	_, err := p.send(ctx, connection, http.MethodPost, "/clusters/"+name+"/apis/apis.kcp.io/v1alpha2/apibindings", map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": map[string]any{"name": "widgets"},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": "provider", "name": "widgets"}}},
	})
	return err
}

// waitForBound returns when a consumer has what it has bound.
func waitForBound(ctx context.Context, p *process, connection int, name string) error {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		answer, err := p.send(ctx, connection, http.MethodGet, "/clusters/"+name+"/apis/apis.kcp.io/v1alpha2/apibindings/widgets", nil)
		if err != nil || strings.Contains(string(answer), `"phase":"Bound"`) {
			return err
		}
	}
	return fmt.Errorf("%s is not bound after five minutes", name)
}

// bindAll binds the export in n logical clusters, and measures a single binding with ever more of them.
func bindAll(ctx context.Context, p *process, n int) ([]row, error) {
	if err := exportWidgets(ctx, p); err != nil {
		return nil, err
	}
	progress("creating %d logical clusters", n)
	_, err := count(ctx, makers, n+sampled*8, func(ctx context.Context, c, i int) error { return ignoreExists(p.logicalCluster(ctx, consumer(i), c)) })
	if err != nil {
		return nil, err
	}
	var rows []row
	one := func(first, bound int) error {
		l, err := count(ctx, 1, sampled, func(ctx context.Context, c, i int) error {
			if err := bindWidgets(ctx, p, c, consumer(first+i)); err != nil {
				return err
			}
			return waitForBound(ctx, p, c, consumer(first+i))
		})
		rows = append(rows, row{What: fmt.Sprintf("bind an API until it is Bound, 1 client, when %d have bound it", bound), Unit: "1/s", Ours: l.perSecond, OursLoad: latencyOf(l)})
		return err
	}
	done, spare := 0, n
	var each float64
	for at := min(100, n); ; at = min(at*10, n) {
		if err := one(spare, done); err != nil {
			return nil, err
		}
		spare += sampled
		before, err := p.settled(ctx)
		if err != nil {
			return nil, err
		}
		progress("binding in %d", at)
		begin, first := time.Now(), done
		_, err = count(ctx, makers, at-done, func(ctx context.Context, c, i int) error { return bindWidgets(ctx, p, c, consumer(first+i)) })
		if err == nil {
			_, err = count(ctx, makers, at-done, func(ctx context.Context, c, i int) error { return waitForBound(ctx, p, c, consumer(first+i)) })
		}
		if err != nil {
			return nil, err
		}
		took := time.Since(begin).Seconds()
		after, err := p.settled(ctx)
		if err != nil {
			return nil, err
		}
		each = (after - before) / float64(at-done) / 1024
		rows = append(rows, row{What: fmt.Sprintf("bind an API in %d logical clusters until all are Bound, %d clients", at-done, makers), Unit: "s", Ours: took})
		if done = at; at == n {
			break
		}
	}
	rows = append(rows, row{What: fmt.Sprintf("resident memory of each binding, of the last of %d", n), Unit: "KiB", Ours: each, Budget: "≤ 20 KiB", Met: each <= 20})
	return rows, one(spare, done)
}

// followAll makes the objects of all consumers, and lists and watches them as their provider does.
func followAll(ctx context.Context, kcp, vanilla *process, n int) ([]row, error) {
	view := rest.CopyConfig(kcp.config)
	view.Host += "/services/apiexport/provider/widgets/clusters/*"
	ours, err := dynamic.NewForConfigAndClient(view, kcp.connections[0])
	if err != nil {
		return nil, err
	}
	if err := vanilla.define(ctx, "", "widgets", 0); err != nil {
		return nil, err
	}
	theirs, err := vanilla.dynamic("", 0)
	if err != nil {
		return nil, err
	}
	var lists, events [2]load
	for i, p := range []*process{kcp, vanilla} {
		progress("creating %d objects on %s", n*objectsEach, p.name)
		if _, err := count(ctx, makers, n, func(ctx context.Context, c, i int) error { return p.fill(ctx, c, consumer(i)) }); err != nil {
			return nil, err
		}
		client := []dynamic.Interface{ours, theirs}[i]
		progress("following them")
		version := ""
		lists[i], err = measured(p, func() (load, error) {
			begin, listed, options := time.Now(), 0, metav1.ListOptions{Limit: page}
			var took []time.Duration
			for {
				one := time.Now()
				list, err := client.Resource(widgets).List(ctx, options)
				if err != nil {
					return load{}, err
				}
				took = append(took, time.Since(one))
				listed, version = listed+len(list.Items), list.GetResourceVersion()
				if options.Continue = list.GetContinue(); options.Continue == "" {
					break
				}
			}
			if listed != n*objectsEach {
				return load{}, fmt.Errorf("%s: %d objects are listed", p.name, listed)
			}
			l := summarize(took, time.Since(begin))
			l.perSecond = float64(listed) / time.Since(begin).Seconds()
			return l, nil
		})
		if err != nil {
			return nil, err
		}
		if events[i], err = changeAndHear(ctx, p, client, version, n); err != nil {
			return nil, err
		}
	}
	what := fmt.Sprintf("the %d objects of %d consumers", n*objectsEach, n)
	return []row{
		throughputRow("list "+what+fmt.Sprintf(" in pages of %d (objects a second)", page), "1/s", lists[0], lists[1], 0.8),
		throughputRow("watch "+what+" while one client changes them (events a second)", "1/s", events[0], events[1], 0.8),
	}, nil
}

// fill makes the objects of one consumer.
func (p *process) fill(ctx context.Context, connection int, name string) error {
	namespace, base := "default", "/clusters/"+name
	if p.cluster("") == "" {
		namespace, base = name, ""
		if _, err := p.send(ctx, connection, http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}); err != nil {
			return err
		}
	}
	for i := range objectsEach {
		_, err := p.send(ctx, connection, http.MethodPost, base+"/apis/"+widgets.GroupVersion().String()+"/namespaces/"+namespace+"/widgets", map[string]any{
			"apiVersion": widgets.GroupVersion().String(), "kind": "Kwidget", "metadata": map[string]any{"name": fmt.Sprintf("widget-%d", i)}, "spec": map[string]any{"field0": "x"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changeAndHear changes objects of one consumer after the other, and measures when the provider hears of it.
func changeAndHear(ctx context.Context, p *process, client dynamic.Interface, version string, n int) (load, error) {
	watching, err := client.Resource(widgets).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return load{}, err
	}
	defer watching.Stop()
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var took []time.Duration
	const changes = 2000
	heard := make(chan error, 1)
	go func() {
		for len(took) < changes {
			event, ok := <-watching.ResultChan()
			if !ok {
				heard <- fmt.Errorf("%s: the watch ended", p.name)
				return
			}
			object, isObject := event.Object.(*unstructured.Unstructured)
			if !isObject {
				continue
			}
			mark, _, _ := unstructured.NestedString(object.Object, "spec", "field1")
			mu.Lock()
			if at, ok := sent[mark]; ok {
				took = append(took, time.Since(at))
			}
			mu.Unlock()
		}
		heard <- nil
	}()
	begin := time.Now()
	for i := range changes {
		name := consumer(i % n)
		namespace := "default"
		if p.cluster("") == "" {
			namespace = name
		}
		mark := fmt.Sprintf("change-%d", i)
		mu.Lock()
		sent[mark] = time.Now()
		mu.Unlock()
		writer, err := p.dynamic(name, 1)
		if err == nil {
			_, err = writer.Resource(widgets).Namespace(namespace).Patch(ctx, "widget-0", types.MergePatchType, []byte(`{"spec":{"field1":"`+mark+`"}}`), metav1.PatchOptions{})
		}
		if err != nil {
			return load{}, err
		}
	}
	select {
	case err := <-heard:
		return summarize(took, time.Since(begin)), err
	case <-time.After(time.Minute):
		return load{}, fmt.Errorf("%s: %d of %d changes were heard of", p.name, len(took), changes)
	}
}
