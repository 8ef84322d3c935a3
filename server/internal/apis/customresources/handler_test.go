package customresources

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	path   = "/apis/example.org/v1/namespaces/n/widgets"
	widget = `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"colour":2}}`
)

func specOf(a answer) string { return fmt.Sprint(a.body["spec"]) }

func TestEachClusterIsServedByItsOwnDefinition(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets())
	s.set("b", widgets(withFields("colour")))
	if got := specOf(s.want(201, "a", "POST", path, widget)); got != "map[size:1]" {
		t.Errorf("in a: got %s, want the size alone", got)
	}
	if got := specOf(s.want(201, "b", "POST", path, widget)); got != "map[colour:2]" {
		t.Errorf("in b: got %s, want the colour alone", got)
	}
	s.want(200, "a", "GET", path+"/w", "")
	s.want(404, "c", "GET", path, "")
	s.want(404, "a", "GET", "/apis/example.org/v2/namespaces/n/widgets", "")
	s.want(404, "a", "GET", "/apis/example.com/v1/namespaces/n/widgets", "")
}

func TestTheVerbsOfUpstreamAreServed(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets())
	apply := `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":3}}`
	s.want(201, "a", "PATCH", path+"/w?fieldManager=test", apply, "Content-Type", "application/apply-patch+yaml")
	s.want(200, "a", "PATCH", path+"/w", `{"spec":{"size":4}}`, "Content-Type", "application/merge-patch+json")
	s.want(200, "a", "PATCH", path+"/w/status", `{"status":{}}`, "Content-Type", "application/merge-patch+json")
	s.want(200, "a", "GET", path+"/w/scale", "")
	s.want(404, "a", "GET", path+"/w/log", "")
	if a := s.want(200, "a", "GET", path, "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"); a.body["kind"] != "Table" {
		t.Errorf("table: got %s", a.text)
	}
	s.want(422, "a", "PATCH", path+"/w", `{"spec":{"size":"big"}}`, "Content-Type", "application/merge-patch+json")
	s.want(200, "a", "DELETE", path+"/w", "")
	s.want(200, "a", "DELETE", path, "")
}

func TestADefinitionThatIsNotEstablishedServesNothing(t *testing.T) {
	s := newShard(t)
	crd := widgets()
	crd.Status.Conditions = nil
	s.set("a", crd)
	s.want(404, "a", "GET", path, "")
	s.set("a", widgets())
	s.want(200, "a", "GET", path, "")
	s.delete("a", crd.Name)
	s.want(404, "a", "GET", path, "")
}

func TestATerminatingDefinitionRefusesCreationInItsClusterOnly(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets())
	s.set("b", widgets())
	s.want(201, "a", "POST", path, widget)
	s.set("a", terminating(widgets()))
	other := strings.ReplaceAll(widget, `"w"`, `"v"`)
	s.want(403, "a", "POST", path, other)
	s.want(403, "a", "PATCH", path+"/v?fieldManager=test", other, "Content-Type", "application/apply-patch+yaml")
	s.want(200, "a", "PATCH", path+"/w", `{"spec":{"size":4}}`, "Content-Type", "application/merge-patch+json")
	s.want(200, "a", "DELETE", path+"/w", "")
	s.want(201, "b", "POST", path, other)
}

func TestARequestWaitsForThePendingEventOfADefinition(t *testing.T) {
	s := newShard(t)
	for i := range 20 {
		cluster := fmt.Sprintf("c%d", i)
		s.send(cluster, widgets())
		s.want(200, cluster, "GET", path, "")
	}
}

func TestTheFirstCreationIsNotDelayed(t *testing.T) {
	s := newShard(t)
	s.set("warm", widgets(withFields("x"))) // initializes data that the process needs once
	s.want(200, "warm", "GET", path, "")
	s.set("a", widgets())
	began := time.Now()
	s.want(201, "a", "POST", path, widget)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the first creation took %s", took)
	}
}

func TestCoreAndUndottedGroupsAreServed(t *testing.T) {
	s := newShard(t)
	const merge = "application/merge-patch+json"
	for _, c := range []struct{ group, version, path string }{
		{"", "v1", "/api/v1/namespaces/n/widgets"}, {"apps", "apps/v1", "/apis/apps/v1/namespaces/n/widgets"},
	} {
		s.set("a", widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Group, crd.Name = c.group, ResourceName("widgets", c.group)
		}))
		body := strings.NewReplacer("example.org/v1", c.version, `,"colour":2`, "").Replace(widget)
		check := func(a answer, size, generation int) {
			t.Helper()
			m := a.body["metadata"].(map[string]any)
			if got := fmt.Sprintln(a.body["apiVersion"], a.body["spec"], m["generation"]); got != fmt.Sprintf("%s map[size:%d] %d\n", c.version, size, generation) {
				t.Errorf("in group %q: got %s, want size %d of generation %d", c.group, got, size, generation)
			}
			if strings.Contains(a.text, innerGroup) {
				t.Errorf("in group %q: got %s", c.group, a.text)
			}
		}
		check(s.want(201, "a", "POST", c.path+"?dryRun=All", body), 1, 1)
		check(s.want(201, "a", "POST", c.path, body), 1, 1)
		check(s.want(200, "a", "PATCH", c.path+"/w?fieldManager=test", body, "Content-Type", "application/apply-patch+yaml"), 1, 1)
		before := s.want(200, "a", "GET", c.path+"/w", "")
		check(before, 1, 1)
		after := s.want(200, "a", "PATCH", c.path+"/w", `{"spec":{"size":1}}`, "Content-Type", merge)
		if before.text != after.text {
			t.Errorf("in group %q: a patch without changes made %s out of %s", c.group, after.text, before.text)
		}
		check(s.want(200, "a", "PATCH", c.path+"/w", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge), 1, 1)
		check(s.want(200, "a", "PATCH", c.path+"/w", `{"spec":{"size":2}}`, "Content-Type", merge), 2, 2)
		version := s.want(200, "a", "GET", c.path+"/w", "").body["metadata"].(map[string]any)["resourceVersion"].(string)
		check(s.want(200, "a", "PUT", c.path+"/w", strings.NewReplacer(`"size":1`, `"size":3`, `"w"`, `"w","resourceVersion":"`+version+`"`).Replace(body)), 3, 3)
		check(s.want(200, "a", "PATCH", c.path+"/w/status", `{"metadata":{"labels":{"a":"c"}}}`, "Content-Type", merge), 3, 3)
		s.want(200, "a", "PATCH", c.path+"/w/scale", `{"spec":{"replicas":7}}`, "Content-Type", merge)
		check(s.want(200, "a", "GET", c.path+"/w", ""), 7, 4)
		s.want(422, "a", "PATCH", c.path+"/w", `{"spec":{"size":"big"}}`, "Content-Type", merge)
		missing := s.want(404, "a", "GET", c.path+"/x", "")
		if want := ResourceName("widgets", c.group); missing.body["message"] != strings.TrimSuffix(want, ".core")+` "x" not found` {
			t.Errorf("in group %q: got %s", c.group, missing.text)
		}
		everywhere := s.want(200, "*", "GET", strings.ReplaceAll(c.path, "/namespaces/n", ""), "", "Accept", metadata)
		if !strings.Contains(everywhere.text, `"`+OriginalAPIVersion+`":"`+c.version+`"`) || strings.Contains(everywhere.text, innerGroup) {
			t.Errorf("in group %q: metadata of all clusters are %s", c.group, everywhere.text)
		}
		if a := s.want(200, "a", "GET", c.path, ""); a.body["apiVersion"] != c.version || strings.Contains(a.text, innerGroup) {
			t.Errorf("list: got %s", a.text)
		}
		s.want(200, "a", "DELETE", c.path+"/w", "")
	}
	s.want(404, "a", "GET", "/apis/core/v1/namespaces/n/widgets", "")
}

func TestSystemDefinitionsAreServedEverywhereAndTakePrecedence(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Name, crd.Spec.Group = "logicalclusters.core.kcp.io", "core.kcp.io"
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "logicalclusters", Singular: "s", Kind: "K", ListKind: "L"}
	}))
	for _, cluster := range []string{"a", "b", "*"} {
		a := s.want(200, cluster, "GET", "/apis/core.kcp.io/v1alpha1/logicalclusters", "")
		if a.body["kind"] != "LogicalClusterList" {
			t.Errorf("in %s: got %s", cluster, a.text)
		}
	}
}

func TestAWatchEndsWhenItsDefinitionIsReplaced(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets())
	s.set("b", widgets())
	follow := func(cluster string) (lines chan string) {
		server := httptest.NewServer(s.in(cluster))
		t.Cleanup(server.Close)
		response, err := http.Get(server.URL + path + "?watch=true")
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("watch in %s: %v %v", cluster, response, err)
		}
		lines = make(chan string, 10)
		go func() {
			defer close(lines)
			defer response.Body.Close()
			for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
				lines <- scanner.Text()
			}
		}()
		return lines
	}
	next := func(lines chan string) (string, bool) {
		select {
		case line, ok := <-lines:
			return line, ok
		case <-time.After(20 * time.Second):
			t.Fatal("nothing happened for 20 s")
			return "", false
		}
	}
	a, b := follow("a"), follow("b")
	s.want(201, "a", "POST", path, widget)
	if line, ok := next(a); !ok || !strings.Contains(line, `"ADDED"`) {
		t.Fatalf("watch in a: got %s", line)
	}
	s.set("a", widgets(withFields("size", "colour")))
	if line, ok := next(a); ok {
		t.Errorf("watch in a: got %s, want its end", line)
	}
	s.want(201, "b", "POST", path, widget)
	if line, ok := next(b); !ok || !strings.Contains(line, `"ADDED"`) {
		t.Errorf("watch in b: got %s, want it to go on", line)
	}
	s.delete("b", "widgets.example.org")
	if line, ok := next(b); ok {
		t.Errorf("watch in b: got %s, want its end", line)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left := s.watches.Len()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d watches are still known", left)
		}
	}
}
