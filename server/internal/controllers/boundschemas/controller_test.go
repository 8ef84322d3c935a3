package boundschemas

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const uid = "of-a-schema"

var (
	now        = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	key        = informers.Key{Cluster: logicalcluster.SystemBoundCRDs, Name: uid}
	errStorage = errors.New("etcd is away")
)

// kept returns the schema as it is kept, which is not used since a time that it may be marked with.
func kept(age time.Duration, unusedSince string) *apisv1alpha1.APIResourceSchema {
	s := objecttest.In(string(logicalcluster.SystemBoundCRDs), &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: uid, CreationTimestamp: metav1.NewTime(now.Add(-age))},
	})
	s.Annotations["kept"] = "yes"
	if unusedSince != "" {
		s.Annotations[apisv1alpha2.UnusedSinceAnnotation] = unusedSince
	}
	return s
}

// rules returns the conversion of the schema as it is kept.
func rules(age time.Duration) *apisv1alpha1.APIConversion {
	return objecttest.In(string(logicalcluster.SystemBoundCRDs), &apisv1alpha1.APIConversion{
		ObjectMeta: metav1.ObjectMeta{Name: uid, CreationTimestamp: metav1.NewTime(now.Add(-age))},
	})
}

func user(cluster string) *apisv1alpha2.APIBinding {
	b := objecttest.In(cluster, &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	b.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Schema: apisv1alpha2.BoundAPIResourceSchema{UID: uid}}}
	return b
}

func TestSchemasAndConversionsThatAreKept(t *testing.T) {
	at := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339) }
	for _, tc := range []struct {
		name           string
		objects        []objecttest.Object
		wantSchema     *apisv1alpha1.APIResourceSchema
		wantConversion *apisv1alpha1.APIConversion
	}{
		{"A schema that is used stays as it is", []objecttest.Object{kept(time.Hour, ""), user("c")}, kept(time.Hour, ""), nil},
		{"A schema that is used again loses its mark", []objecttest.Object{kept(time.Hour, at(time.Hour)), user("c")}, kept(time.Hour, ""), nil},
		{"A new schema may still be bound", []objecttest.Object{kept(time.Second, "")}, kept(time.Second, ""), nil},
		{"A schema that is not used any more is marked", []objecttest.Object{kept(time.Hour, "")}, kept(time.Hour, at(0)), nil},
		{"A schema with a mark that is no time is marked again", []objecttest.Object{kept(time.Hour, "long ago")}, kept(time.Hour, at(0)), nil},
		{
			"A schema is kept for a while, with its conversion", []objecttest.Object{kept(time.Hour, at(grace-time.Second)), rules(time.Hour)},
			kept(time.Hour, at(grace-time.Second)), rules(time.Hour),
		},
		{
			"A schema that was not used for long is deleted, and its conversion later", []objecttest.Object{kept(time.Hour, at(grace)), rules(time.Hour)},
			nil, rules(time.Hour),
		},
		{"A conversion without a schema is deleted", []objecttest.Object{rules(grace)}, nil, nil},
		{"A new conversion waits for its schema", []objecttest.Object{rules(grace - time.Second)}, nil, rules(grace - time.Second)},
		{"A key of nothing is no failure", nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := objecttest.New(t, tc.objects...)
			if err := newController(o).Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			ignore := cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion")
			if diff := cmp.Diff(tc.wantSchema, stored[apisv1alpha1.APIResourceSchema](t, o.Stored(o.Set.APIResourceSchemas.Informer)), ignore); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.wantConversion, stored[apisv1alpha1.APIConversion](t, o.Stored(o.Set.APIConversions.Informer)), ignore); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestASchemaThatIsUsedAgainIsNotDeleted(t *testing.T) {
	long := now.Add(-grace).Format(time.RFC3339)
	for _, tc := range []struct {
		name     string
		stored   *apisv1alpha1.APIResourceSchema
		conflict bool
	}{
		{"A schema whose mark was removed is a conflict", kept(time.Hour, ""), true},
		{"A schema whose mark was renewed is a conflict", kept(time.Hour, now.Format(time.RFC3339)), true},
		{"A schema that is gone is no failure", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := objecttest.New(t)
			o.Show(kept(time.Hour, long))
			if tc.stored != nil {
				o.Store(tc.stored)
			}
			err := newController(o).Reconcile(t.Context(), key)
			if apierrors.IsConflict(err) != tc.conflict || (err != nil) != tc.conflict {
				t.Errorf("got error %v, want a conflict: %t", err, tc.conflict)
			}
			if got := stored[apisv1alpha1.APIResourceSchema](t, o.Stored(o.Set.APIResourceSchemas.Informer)); (got != nil) != (tc.stored != nil) {
				t.Errorf("stored is %v", got)
			}
		})
	}
}

func TestTheNextConversionOfTheNameIsKept(t *testing.T) {
	o := objecttest.New(t)
	o.Show(rules(grace))
	next := rules(0)
	next.UID = "2"
	o.Store(next)
	if err := newController(o).Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if got := stored[apisv1alpha1.APIConversion](t, o.Stored(o.Set.APIConversions.Informer)); got == nil {
		t.Error("it was deleted")
	}
}

func TestFailuresOfStorageAreRetried(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []objecttest.Object
	}{
		{"A schema that must be marked", []objecttest.Object{kept(time.Hour, "")}},
		{"A schema that must be deleted", []objecttest.Object{kept(time.Hour, now.Add(-grace).Format(time.RFC3339))}},
		{"A conversion that must be deleted", []objecttest.Object{rules(time.Hour)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := objecttest.New(t, tc.objects...)
			o.Stored(o.Set.APIResourceSchemas.Informer).Fail(key.Cluster, uid, errStorage)
			o.Stored(o.Set.APIConversions.Informer).Fail(key.Cluster, uid, errStorage)
			if err := newController(o).Reconcile(t.Context(), key); !errors.Is(err, errStorage) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func newController(o *objecttest.Objects) *runner.Controller {
	return New(Inputs{
		Set: o.Set, Schemas: o.Stored(o.Set.APIResourceSchemas.Informer), Conversions: o.Stored(o.Set.APIConversions.Informer),
		Clock: testingclock.NewFakePassiveClock(now),
	})
}

// stored returns what is stored under the UID, nil if nothing is.
func stored[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, s *objecttest.Stored) P {
	t.Helper()
	out := P(new(T))
	err := s.Get(logicalcluster.WithName(t.Context(), key.Cluster), uid, out)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return out
}
