// Package durability tests that a server which is killed during writes loses no acknowledged data.
package durability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	clusters = 3
	// fewKills is the number of kills of an ordinary run, allKills the number with KCP_DURABILITY=all.
	fewKills, allKills = 5, 50
)

func TestKilledServerLosesNoAcknowledgedWrites(t *testing.T) {
	kills := fewKills
	if os.Getenv("KCP_DURABILITY") == "all" {
		kills = allKills
	}
	dir := t.TempDir()
	server := kcptest.StartIn(t, dir)
	var all []*cluster
	for range clusters {
		all = append(all, prepare(t, server.Cluster(t)))
	}
	var slowest time.Duration
	for kill := range kills {
		ctx, end := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for _, c := range all {
			use(ctx, t, server, c, &clients)
		}
		time.Sleep(time.Duration(200+rand.IntN(800)) * time.Millisecond)
		server.Kill()
		dead := make([]int64, len(all))
		for i, c := range all {
			dead[i] = c.register.now()
		}
		end()
		clients.Wait()
		for i, c := range all {
			c.register.killed(dead[i])
		}
		began := time.Now()
		server = kcptest.RestartIn(t, dir, questions(all))
		slowest = max(slowest, time.Since(began))
		for _, c := range all {
			c.check(t, server, kill)
		}
	}
	for _, c := range all {
		c.checkWatch(t, server)
		for i, l := range c.register.lives {
			if !l.linearizable() {
				t.Errorf("%s: the history of the register in life %d is not linearizable:\n%s", c.name, i, l)
			}
		}
	}
	listed := map[string][]string{}
	for _, c := range all {
		listed[c.name] = c.list(t, server, "")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	compareWithEtcd(t, server.Root, listed)
	puts, objects := 0, 0
	for _, c := range all {
		acknowledged, _ := c.register.puts()
		puts, objects = puts+len(acknowledged), objects+len(c.objects)
	}
	t.Logf("%d kills: lost none of %d acknowledged writes of registers and %d other objects; the slowest restart took %s", kills, puts, objects, slowest)
	if puts < kills || objects < kills {
		t.Error("too few objects were written for this test")
	}
}

// questions returns the probes that are sent while a server restarts.
func questions(all []*cluster) []kcptest.Probe {
	var questions []kcptest.Probe
	for _, c := range all {
		questions = append(questions,
			kcptest.Probe{User: kcptest.Masters, Path: "/clusters/" + c.name + "/api/v1/namespaces/default/configmaps/" + registerName},
			kcptest.Probe{User: kcptest.Masters, Path: "/clusters/" + c.name + "/apis/durability.test/v1/widgets?limit=1"})
	}
	return questions
}

func prepare(t *testing.T, in *kcptest.Cluster) *cluster {
	t.Helper()
	preserve := true
	in.Define(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	})
	c := &cluster{name: in.Name, register: newHistory(), objects: map[string]state{}}
	created, err := in.Kube(t, kcptest.Masters).CoreV1().ConfigMaps(namespace).Create(t.Context(), registerOf(""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.version = created.ResourceVersion
	return c
}

// use runs the clients of a cluster.
func use(ctx context.Context, t *testing.T, server *kcptest.Server, c *cluster, running *sync.WaitGroup) {
	in := server.Named(c.name)
	kube, all := in.Kube(t, kcptest.Masters), in.Dynamic(t, kcptest.Masters)
	running.Go(func() { c.put(ctx, kube, 0) })
	running.Go(func() { c.put(ctx, kube, 1) })
	running.Go(func() { c.get(ctx, kube, 2) })
	running.Go(func() { c.get(ctx, kube, 3) })
	running.Go(func() { c.churn(ctx, all) })
	running.Go(func() { c.follow(ctx, kube) })
}

// list returns the objects of both resources in a cluster, as "<resource>/<name>".
func (c *cluster) list(t *testing.T, server *kcptest.Server, version string) []string {
	t.Helper()
	in := server.Named(c.name)
	var found []string
	maps, err := in.Kube(t, kcptest.Masters).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps.Items {
		found = append(found, "configmaps/"+m.Name)
	}
	custom, err := in.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace(namespace).List(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range custom.Items {
		found = append(found, "widgets/"+w.GetName())
	}
	slices.Sort(found)
	return found
}

// check compares the objects of a restarted server with the acknowledged ones.
func (c *cluster) check(t *testing.T, server *kcptest.Server, kill int) {
	t.Helper()
	for _, err := range c.broken {
		t.Errorf("%s: %v", c.name, err)
	}
	c.broken = nil
	found := c.list(t, server, "")
	if cached := c.list(t, server, "0"); !slices.Equal(found, cached) {
		t.Errorf("%s after kill %d: a cached list has %d objects, a consistent one %d", c.name, kill, len(cached), len(found))
	}
	now, err := server.Named(c.name).Kube(t, kcptest.Masters).CoreV1().ConfigMaps(namespace).Get(t.Context(), registerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.register.restarted(now.Data["value"])
	for key, known := range c.objects {
		if _, there := slices.BinarySearch(found, key); known != unknown && there != (known == present) {
			t.Errorf("%s after kill %d: %s exists: %t, which contradicts the acknowledged writes", c.name, kill, key, there)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// checkWatch compares the events of the watch, over all lives of the server, with the writes.
func (c *cluster) checkWatch(t *testing.T, server *kcptest.Server) {
	t.Helper()
	kube := server.Named(c.name).Kube(t, kcptest.Masters)
	last, err := kube.CoreV1().ConfigMaps(namespace).Get(t.Context(), registerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.follow(ctx, kube) })
	kcptest.Eventually(t, "the watch has delivered the last state", func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.seen) == 0 || c.seen[len(c.seen)-1].value != last.Data["value"] {
			return fmt.Errorf("got version %s, want %s", c.version, last.ResourceVersion)
		}
		return nil
	})
	end()
	running.Wait()
	acknowledged, uncertain := c.register.puts()
	delivered := map[string]bool{}
	before := uint64(0)
	for _, s := range c.seen {
		version, err := strconv.ParseUint(s.version, 10, 64)
		if err != nil || version <= before {
			t.Errorf("%s: the watch delivered version %s after %d", c.name, s.version, before)
		}
		if before = version; delivered[s.value] {
			t.Errorf("%s: the watch delivered %s twice", c.name, s.value)
		}
		if delivered[s.value] = true; !acknowledged[s.value] && !uncertain[s.value] {
			t.Errorf("%s: the watch delivered %s, which no client wrote", c.name, s.value)
		}
	}
	var missing []string
	for value := range acknowledged {
		if !delivered[value] {
			missing = append(missing, value)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%s: the watch did not deliver the acknowledged %s", c.name, strings.Join(missing, ", "))
	}
}
