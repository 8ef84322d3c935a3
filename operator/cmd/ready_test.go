package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/kcplane/kcp/operator/internal/scheme"
)

func TestReadyMeansThatTheOperatorLeadsOrIsOnStandby(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		change func(*readiness, *cluster)
		says   string // nothing: it is ready
	}{
		"it works": {change: func(r *readiness, c *cluster) {
			c.lease.Spec.HolderIdentity = nil
			elected := make(chan struct{})
			close(elected)
			r.elected = elected
		}},
		"another one works": {change: func(*readiness, *cluster) {}},
		"the other one has died": {says: "no operator holds Lease operators/" + leaseName, change: func(_ *readiness, c *cluster) {
			c.lease.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-time.Minute)))
		}},
		"none has ever worked": {says: "reading the leader election Lease", change: func(_ *readiness, c *cluster) { c.lease.Name = "other" }},
		"a cache is not filled": {says: "caching *v1.Pod: not filled yet", change: func(r *readiness, _ *cluster) {
			r.cache = &informertest.FakeInformers{InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
				corev1.SchemeGroupVersion.WithKind("Pod"): controllertest.NewFakeInformer()}}
		}},
		"a kind is missing": {says: "are cert-manager and the operator's own kinds installed?", change: func(r *readiness, _ *cluster) {
			r.cache = &informertest.FakeInformers{Error: errors.New("no matches for kind")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := working(now)
			r := &readiness{cache: &informertest.FakeInformers{}, watched: []client.Object{&corev1.Service{}, &corev1.Pod{}},
				elected: make(chan struct{}), lease: client.ObjectKeyFromObject(c.lease), now: func() time.Time { return now }}
			test.change(r, c)
			logged := ""
			r.log = func(_ string, reason ...any) { logged = fmt.Sprint(reason...) }
			r.live = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.lease).Build()
			err := r.check(httptest.NewRequest("GET", "/readyz", nil))
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(logged, test.says) || test.says == "" && logged != "" {
				t.Errorf("the log has %q", logged)
			}
		})
	}
}

// lazy is a cache whose informers are filled when one was requested for each of a number of kinds.
type lazy struct {
	informertest.FakeInformers
	kinds int
	asked map[string]bool
}

// lazyInformer is an informer of a lazy cache.
type lazyInformer struct {
	*controllertest.FakeInformer
	of *lazy
}

func (i lazyInformer) HasSynced() bool { return len(i.of.asked) == i.of.kinds }

func (l *lazy) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	l.asked[fmt.Sprintf("%T", object)] = true
	return lazyInformer{controllertest.NewFakeInformer(), l}, nil
}

func TestOneCheckStartsTheInformersOfAllKinds(t *testing.T) {
	now := time.Now()
	c := working(now)
	l := &lazy{kinds: 3, asked: map[string]bool{}}
	r := &readiness{cache: l, watched: []client.Object{&corev1.Service{}, &corev1.Pod{}, &corev1.Secret{}}, elected: make(chan struct{}),
		lease: client.ObjectKeyFromObject(c.lease), now: func() time.Time { return now }, log: func(string, ...any) {},
		live: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.lease).Build()}
	if err := r.check(httptest.NewRequest("GET", "/readyz", nil)); err != nil {
		t.Error(err)
	}
}
