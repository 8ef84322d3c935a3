package apisharing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// tenant is the state of a consumer in the model.
type tenant struct {
	*kcptest.Cluster
	provider int    // index of the provider whose API is bound, or -1
	selects  string // color that the accepted claim selects, "all", or ""
	// configMaps are the colors of ConfigMaps by name. widgets are the names of objects of the bound API.
	configMaps map[string]string
	widgets    map[string]bool
}

// sharing is a set of providers and consumers whose bindings and claims change randomly.
type sharing struct {
	t         *testing.T
	rng       *rand.Rand
	providers []*kcptest.Cluster
	tenants   []*tenant
	made      int
}

var colors = []string{"red", "blue"}

// TestProvidersSeeExactlyWhatConsumersGrant randomly changes bindings and accepted claims, and compares the objects that providers see
// with a model. KCP_SHARING_STEPS and KCP_SHARING_SEED select other runs.
func TestProvidersSeeExactlyWhatConsumersGrant(t *testing.T) {
	t.Parallel()
	setting := func(name string, standard uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return standard
	}
	seed := setting("KCP_SHARING_SEED", 1)
	s := &sharing{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	for range 2 {
		p := provider(t)
		claiming(t, p, `"*"`)
		s.providers = append(s.providers, p)
	}
	for range 5 {
		s.tenants = append(s.tenants, &tenant{Cluster: server.Cluster(t), provider: -1, configMaps: map[string]string{}})
	}
	steps := []func(*tenant){s.bind, s.unbind, s.answer, s.answer, s.addConfigMap, s.addConfigMap, s.repaint, s.removeConfigMap, s.addWidget, s.addWidget, s.removeWidget}
	for step := range int(setting("KCP_SHARING_STEPS", 60)) {
		steps[s.rng.IntN(len(steps))](s.tenants[s.rng.IntN(len(s.tenants))])
		if step%5 == 4 {
			s.compare()
		}
		if t.Failed() {
			t.Fatalf("at step %d of the run with KCP_SHARING_SEED=%d", step, seed)
		}
	}
}

func (s *sharing) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sharing) bind(c *tenant) {
	if c.provider >= 0 {
		return
	}
	c.provider = s.rng.IntN(len(s.providers))
	c.widgets = map[string]bool{}
	bind(s.t, c.Cluster, s.providers[c.provider])
}

func (s *sharing) unbind(c *tenant) {
	if c.provider < 0 {
		return
	}
	client := c.Dynamic(s.t, kcptest.Masters).Resource(kcptest.APIBindings)
	s.check(client.Delete(kcptest.Context(s.t), "widgets", metav1.DeleteOptions{}))
	kcptest.Eventually(s.t, "the binding is deleted", func(ctx context.Context) error {
		if _, err := client.Get(ctx, "widgets", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %v", err)
		}
		return nil
	})
	c.provider, c.selects, c.widgets = -1, "", nil
}

// answer accepts the claim with a selector, rejects it, or leaves it open.
func (s *sharing) answer(c *tenant) {
	if c.provider < 0 {
		return
	}
	c.selects = []string{"", "rejected", "all", "red", "blue"}[s.rng.IntN(5)]
	accept(s.t, c.Cluster, "", "", "") // selectors are immutable, so the claim is withdrawn first
	switch c.selects {
	case "":
	case "rejected":
		c.selects = ""
		accept(s.t, c.Cluster, "Rejected", `"*"`, everyObject)
	case "all":
		accept(s.t, c.Cluster, "Accepted", `"*"`, everyObject)
	default:
		accept(s.t, c.Cluster, "Accepted", `"*"`, fmt.Sprintf(`{"matchLabels":{"color":%q}}`, c.selects))
	}
}

func (s *sharing) name() string {
	s.made++
	return fmt.Sprintf("object-%d", s.made)
}

// some returns a random key.
func some[V any](s *sharing, m map[string]V) (string, bool) {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return "", false
	}
	slices.Sort(keys)
	return keys[s.rng.IntN(len(keys))], true
}

func (s *sharing) addConfigMap(c *tenant) {
	name, color := s.name(), colors[s.rng.IntN(2)]
	_, err := c.Dynamic(s.t, kcptest.Masters).Resource(configMaps).Namespace("default").Create(kcptest.Context(s.t), configMap(name, map[string]any{"color": color}), metav1.CreateOptions{})
	s.check(err)
	c.configMaps[name] = color
}

func (s *sharing) repaint(c *tenant) {
	name, ok := some(s, c.configMaps)
	if !ok {
		return
	}
	color := colors[s.rng.IntN(2)]
	patch := fmt.Sprintf(`{"metadata":{"labels":{"color":%q}}}`, color)
	_, err := c.Dynamic(s.t, kcptest.Masters).Resource(configMaps).Namespace("default").Patch(kcptest.Context(s.t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.check(err)
	c.configMaps[name] = color
}

func (s *sharing) removeConfigMap(c *tenant) {
	if name, ok := some(s, c.configMaps); ok {
		s.check(c.Dynamic(s.t, kcptest.Masters).Resource(configMaps).Namespace("default").Delete(kcptest.Context(s.t), name, metav1.DeleteOptions{}))
		delete(c.configMaps, name)
	}
}

func (s *sharing) addWidget(c *tenant) {
	if c.provider >= 0 {
		name := s.name()
		create(s.t, c.Cluster, name)
		c.widgets[name] = true
	}
}

func (s *sharing) removeWidget(c *tenant) {
	if name, ok := some(s, c.widgets); ok {
		s.check(c.Dynamic(s.t, kcptest.Masters).Resource(widgets).Namespace("default").Delete(kcptest.Context(s.t), name, metav1.DeleteOptions{}))
		delete(c.widgets, name)
	}
}

// compare waits until every provider sees the objects of the model, in all logical clusters together and in each one.
func (s *sharing) compare() {
	s.t.Helper()
	for i, p := range s.providers {
		var granted, own []string
		for _, c := range s.tenants {
			if c.provider != i {
				continue
			}
			var here []string
			for name, color := range c.configMaps {
				if c.selects == "all" || c.selects == color {
					here = append(here, c.Name+"/"+name)
				}
			}
			for name := range c.widgets {
				own = append(own, c.Name+"/"+name)
			}
			granted = append(granted, here...)
			s.compareOne(p, c.Name, configMaps, here, c.selects == "")
		}
		s.compareOne(p, "*", configMaps, granted, false)
		s.compareOne(p, "*", widgets, own, false)
		for _, c := range s.tenants {
			if c.provider == i {
				continue
			}
			for _, resource := range []schema.GroupVersionResource{widgets, configMaps} {
				_, err := view(s.t, kcptest.Masters, p, c.Name).Resource(resource).List(kcptest.Context(s.t), metav1.ListOptions{})
				kcptest.WantReason(s.t, err, metav1.StatusReasonForbidden)
			}
		}
	}
}

// compareOne waits until a provider sees exactly the objects "<cluster>/<name>". If it has no permission, it must see none.
func (s *sharing) compareOne(p *kcptest.Cluster, cluster string, resource schema.GroupVersionResource, want []string, refused bool) {
	s.t.Helper()
	slices.Sort(want)
	kcptest.Eventually(s.t, fmt.Sprintf("the provider sees the %s %v in %s", resource.Resource, want, cluster), func(ctx context.Context) error {
		list, err := view(s.t, kcptest.Masters, p, cluster).Resource(resource).List(ctx, metav1.ListOptions{})
		if refused {
			return forbidden(err)
		}
		if err != nil {
			return err
		}
		var seen []string
		for _, item := range list.Items {
			if item.GetName() != "kube-root-ca.crt" {
				seen = append(seen, item.GetAnnotations()["kcp.io/cluster"]+"/"+item.GetName())
			}
		}
		if slices.Sort(seen); !slices.Equal(seen, want) {
			return fmt.Errorf("got %v", seen)
		}
		return nil
	})
}
