package feed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/objecttest"
)

func TestRolesAreReadAgainUntilBothKindsAreOfOneMoment(t *testing.T) {
	w := newWorld(t)
	w.connect()
	binder := role("binder", resourceRule(apisGroup, "apiexports", "bind"))
	w.has("root", logicalCluster("", ""), binder, bindingTo("binder", subject("User", "bob")))
	w.settle()
	// The binding is deleted, and then the role is widened. The informer of bindings is behind.
	w.has("root", role("binder", resourceRule(apisGroup, "apiexports", "bind", "delete")))
	asked := 0
	w.versions = func(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error) {
		if resource.Resource == "clusterrolebindings" {
			if asked++; asked == 2 {
				w.Hide(objecttest.In("root", bindingTo("binder")))
			}
			return nil, uint64(w.revision), nil
		}
		return w.shown(ctx, resource)
	}
	equal(t, "writes", w.settle(), "DELETE root"+bindingsPath+"/binding", "PUT root"+rolesPath+"/binder")
	if asked < 2 {
		t.Errorf("the bindings were read %d times", asked)
	}
}

func TestRolesThatCannotBeReadDelayNothingElse(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.versions = func(context.Context, schema.GroupResource) (map[string]uint64, uint64, error) {
		return nil, 0, errors.New("unreadable")
	}
	w.has("root", logicalCluster("", ""), export("widgets"), role("binder", resourceRule(apisGroup, "apiexports", "bind")))
	if errs := w.try(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "unreadable") {
		t.Errorf("got errors %v", errs)
	}
	equal(t, "offered", w.cache.paths("here"), "root"+exportsPath+"/widgets", "root"+clusterPath+"/cluster")
}

func TestSubjectsAreRemovedBeforeARoleChangesAndAddedAfterwards(t *testing.T) {
	w := newWorld(t)
	w.connect()
	alice, bob, carol := subject("User", "alice"), subject("User", "bob"), subject("User", "carol")
	w.has("root", logicalCluster("", ""), role("binder", resourceRule(apisGroup, "apiexports", "bind")), bindingTo("binder", alice, bob))
	w.settle()
	w.has("root", role("binder", resourceRule(apisGroup, "apiexports", "*")), bindingTo("binder", bob, carol))
	seen := [][]string{}
	subjects := func() []string {
		binding := rbacv1.ClusterRoleBinding{}
		convert(t, w.cache.get("root"+bindingsPath+"/binding"), &binding)
		var names []string
		for _, s := range binding.Subjects {
			names = append(names, s.Name)
		}
		return names
	}
	w.cache.onWrite = func() { seen = append(seen, subjects()) }
	equal(t, "writes", w.settle(), "PUT root"+bindingsPath+"/binding", "PUT root"+rolesPath+"/binder", "PUT root"+bindingsPath+"/binding")
	// Each is what the binding has before the write.
	want := [][]string{{"alice", "bob"}, {"bob"}, {"bob"}}
	if !slices.EqualFunc(seen, want, slices.Equal) || !slices.Equal(subjects(), []string{"bob", "carol"}) {
		t.Errorf("got %v and then %v", seen, subjects())
	}
}

func TestABindingThatCannotBeRemovedKeepsRolesAsTheyAre(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), role("binder", resourceRule(apisGroup, "apiexports", "bind")),
		bindingTo("binder", subject("User", "bob")))
	w.settle()
	w.hasNot("root", bindingTo("binder"))
	w.has("root", role("binder", resourceRule(apisGroup, "apiexports", "*")), export("widgets"))
	w.cache.set(func() { w.cache.refused = []string{bindingsPath} })
	if errs := w.try(); len(errs) != 1 {
		t.Errorf("got errors %v", errs)
	}
	equal(t, "writes", w.cache.takeWrites(), "DELETE root"+bindingsPath+"/binding", "PUT root"+clusterPath+"/cluster", "POST root"+exportsPath)
}

func TestRestrictionsComeBeforeWhatTheyRestrictAndGoAfterIt(t *testing.T) {
	w := newWorld(t)
	w.connect()
	policy := policyNamed("policy")
	w.has("root", logicalCluster("", ""), export("widgets"), policy)
	equal(t, "writes", w.settle(), "POST root"+clusterPath,
		"POST root/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "POST root"+exportsPath)
	w.hasNot("root", policy)
	w.has("root", policyNamed("successor"))
	equal(t, "writes of a replacement", w.settle(), "POST root/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"DELETE root/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/policy")
	w.hasNot("root", export("widgets"))
	equal(t, "writes of the end", w.settle(), "DELETE root"+exportsPath+"/widgets",
		"DELETE root"+clusterPath+"/cluster", "DELETE root/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/successor")
}

func TestARestrictionThatIsRefusedHoldsBackOnlyItsOwnCluster(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.cache.set(func() { w.cache.refused = []string{"policy"} })
	w.has("a", logicalCluster("", ""), policyNamed("policy"), export("widgets"))
	w.has("b", logicalCluster("", ""), export("widgets"))
	if errs := w.try(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "ValidatingAdmissionPolicy policy of logical cluster a") {
		t.Errorf("got errors %v", errs)
	}
	equal(t, "offered", w.cache.paths("here"), "a"+clusterPath+"/cluster", "b"+exportsPath+"/widgets", "b"+clusterPath+"/cluster")
}

func TestAnObjectThatIsRefusedBlocksNoOther(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.cache.set(func() { w.cache.refused = []string{"broken"} })
	w.has("a", logicalCluster("", ""), export("broken"), export("widgets"))
	if errs := w.try(); len(errs) != 1 {
		t.Errorf("got errors %v", errs)
	}
	equal(t, "offered", w.cache.paths("here"), "a"+exportsPath+"/widgets", "a"+clusterPath+"/cluster")
	if w.offer.pending.lag() != 0 {
		t.Errorf("lag is %s at once", w.offer.pending.lag())
	}
	w.clock.Step(time.Minute)
	if w.offer.pending.lag() != time.Minute {
		t.Errorf("lag is %s after a minute", w.offer.pending.lag())
	}
	w.cache.set(func() { w.cache.refused = nil })
	w.settle()
	if w.offer.pending.lag() != 0 {
		t.Errorf("lag is %s when everything is offered", w.offer.pending.lag())
	}
}
