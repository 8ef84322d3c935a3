package claims

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

var (
	all  = apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	red  = matchLabels("color", "red")
	blue = matchLabels("color", "blue")
)

func matchLabels(key, value string) apisv1alpha2.PermissionClaimSelector {
	return apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

func expression(key string, operator metav1.LabelSelectorOperator, values ...string) apisv1alpha2.PermissionClaimSelector {
	return apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
	}}
}

// claim returns a claim on resource.group:identity.
func claim(name string, verbs ...string) apisv1alpha2.PermissionClaim {
	name, identity, _ := strings.Cut(name, ":")
	resource := schema.ParseGroupResource(name)
	return apisv1alpha2.PermissionClaim{
		GroupResource: apisv1alpha2.GroupResource{Group: resource.Group, Resource: resource.Resource}, IdentityHash: identity, Verbs: verbs,
	}
}

func scoped(name string, selector apisv1alpha2.PermissionClaimSelector, verbs ...string) apisv1alpha2.ScopedPermissionClaim {
	return apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claim(name, verbs...), Selector: selector}
}

func accepted(claims ...apisv1alpha2.ScopedPermissionClaim) (all []apisv1alpha2.AcceptablePermissionClaim) {
	for _, c := range claims {
		all = append(all, apisv1alpha2.AcceptablePermissionClaim{ScopedPermissionClaim: c, State: apisv1alpha2.ClaimAccepted})
	}
	return all
}

func binding(name string, claims ...apisv1alpha2.AcceptablePermissionClaim) *apisv1alpha2.APIBinding {
	b := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PermissionClaims = claims
	return b
}

// exportOf assigns bindings whose names begin with the name of an export to that export, and does not find others.
func exportOf(b *apisv1alpha2.APIBinding) (Export, bool) {
	name, _, _ := strings.Cut(b.Name, "-")
	return Export{"provider", name}, name != "lost"
}

func base62(text string) string {
	sum := sha256.Sum224([]byte(text))
	return new(big.Int).SetBytes(sum[:]).Text(62)
}

func TestHashesDependOnTheClaimedResource(t *testing.T) {
	for name, tc := range map[string]struct {
		claim apisv1alpha2.PermissionClaim
		json  string
	}{
		"a core resource":       {claim("configmaps", "get"), `{"resource":"configmaps"}`},
		"other verbs":           {claim("configmaps", "*"), `{"resource":"configmaps"}`},
		"a group":               {claim("roles.rbac.authorization.k8s.io"), `{"group":"rbac.authorization.k8s.io","resource":"roles"}`},
		"an identity":           {claim("widgets.example.io:abc"), `{"group":"example.io","resource":"widgets","identityHash":"abc"}`},
		"events":                {claim("events"), `{"resource":"events"}`},
		"events in their group": {claim("events.events.k8s.io"), `{"resource":"events"}`},
		"a default selector": {apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, DefaultSelector: &red},
			`{"resource":"secrets"}`},
	} {
		t.Run(name, func(t *testing.T) {
			key, value := Export{"root", "widgets.example.io"}.Label(&tc.claim)
			wantKey := "claimed.internal.apis.kcp.io/" + base62("root:widgets.example.io")
			if wantValue := base62(tc.json); key != wantKey || value != wantValue {
				t.Errorf("label %s=%s, want %s=%s", key, value, wantKey, wantValue)
			}
			if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
				t.Errorf("%s=%s is no label: %v", key, value, problems)
			}
		})
	}
}

func TestLabelsShowWhoMayAccessAnObject(t *testing.T) {
	label := func(export, name string) map[string]string {
		c := claim(name)
		key, value := Export{"provider", export}.Label(&c)
		return map[string]string{key: value}
	}
	both := label("one", "configmaps")
	for key, value := range label("two", "configmaps") {
		both[key] = value
	}
	onConfigMaps := claim("configmaps")
	key, value := Export{"provider", "one"}.UnlistedLabel(&onConfigMaps)
	unlisted := map[string]string{key: value}
	rejected := accepted(scoped("configmaps", all))
	rejected[0].State = apisv1alpha2.ClaimRejected
	for name, tc := range map[string]struct {
		resource string
		object   map[string]string
		bindings []*apisv1alpha2.APIBinding
		want     map[string]string
		err      string
	}{
		"no binding":                {"configmaps", nil, nil, nil, ""},
		"all objects":               {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", all))...)}, label("one", "configmaps"), ""},
		"a rejected claim":          {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("one", rejected...)}, nil, ""},
		"another resource":          {"secrets", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", all))...)}, nil, ""},
		"another group":             {"configmaps.example.io", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", all))...)}, nil, ""},
		"objects with a label":      {"configmaps", red.MatchLabels, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", red))...)}, label("one", "configmaps"), ""},
		"objects with another one":  {"configmaps", blue.MatchLabels, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", red))...)}, nil, ""},
		"two exports":               {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("two", accepted(scoped("configmaps", all))...), binding("one", accepted(scoped("configmaps", all))...)}, both, ""},
		"an export that is unknown": {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("lost", accepted(scoped("configmaps", all))...), binding("one", accepted(scoped("configmaps", all))...)}, label("one", "configmaps"), ""},
		"events by either group":    {"events.events.k8s.io", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("events", all))...)}, label("one", "events"), ""},
		"events by the other group": {"events", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("events.events.k8s.io", all))...)}, label("one", "events"), ""},
		"another identity":          {"widgets.example.io:c", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("widgets.example.io:a", all))...)}, nil, ""},
		"two bindings to an export, in the order of their names": {"widgets.example.io:a", nil, []*apisv1alpha2.APIBinding{
			binding("one-b", accepted(scoped("widgets.example.io:a", all))...), binding("one-a", accepted(scoped("widgets.example.io:a", all))...)},
			label("one", "widgets.example.io:a"), ""},
		"objects that cannot be listed": {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", all, "get", "create"))...)}, unlisted, ""},
		"objects that can be watched":   {"configmaps", nil, []*apisv1alpha2.APIBinding{binding("one", accepted(scoped("configmaps", all, "watch"))...)}, label("one", "configmaps"), ""},
		"an invalid selector": {"configmaps", nil, []*apisv1alpha2.APIBinding{
			binding("one", accepted(scoped("configmaps", apisv1alpha2.PermissionClaimSelector{}))...), binding("two", accepted(scoped("configmaps", all))...)},
			label("two", "configmaps"), "binding one, claim on configmaps: a selector must have matchAll, matchLabels or matchExpressions"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, b := range tc.bindings {
				for i := range b.Spec.PermissionClaims {
					if c := &b.Spec.PermissionClaims[i]; c.Verbs == nil {
						c.Verbs = []string{"*"}
					}
				}
			}
			resource, identity, _ := strings.Cut(tc.resource, ":")
			got, err := Labels(schema.ParseGroupResource(resource), identity, tc.object, tc.bindings, exportOf)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := fmt.Sprint(err); (err != nil || tc.err != "") && text != tc.err {
				t.Errorf("error %q, want %q", text, tc.err)
			}
		})
	}
}

func TestBindingsShowTheirExport(t *testing.T) {
	one, two := binding("one"), binding("two")
	key, value := Export{"provider", "one"}.ReflexiveLabel()
	got, err := LabelsOfBinding(one, []*apisv1alpha2.APIBinding{one, two}, exportOf)
	if diff := cmp.Diff(map[string]string{key: value}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	onBindings := scoped("apibindings.apis.kcp.io", all, "list")
	one.Spec.PermissionClaims = accepted(onBindings)
	key, value = Export{"provider", "one"}.Label(&onBindings.PermissionClaim)
	got, err = LabelsOfBinding(one, []*apisv1alpha2.APIBinding{one, two}, exportOf)
	if diff := cmp.Diff(map[string]string{key: value}, got); diff != "" || err != nil {
		t.Errorf("with a claim on bindings: %v (-want +got):\n%s", err, diff)
	}
	if got, err := LabelsOfBinding(binding("lost"), nil, exportOf); len(got) > 0 || err != nil {
		t.Errorf("of an unknown export: %v, %v", got, err)
	}
}

func TestRelabelKeepsOnlyTheLabelsOfValidClaims(t *testing.T) {
	forged := apisv1alpha2.ClaimedLabelPrefix + "x"
	for name, tc := range map[string]struct{ object, claimed, want map[string]string }{
		"none":       {nil, nil, nil},
		"new":        {nil, map[string]string{forged: "1"}, map[string]string{forged: "1"}},
		"forged":     {map[string]string{"a": "b", forged: "1"}, nil, map[string]string{"a": "b"}},
		"overridden": {map[string]string{forged: "2"}, map[string]string{forged: "1"}, map[string]string{forged: "1"}},
	} {
		if diff := cmp.Diff(tc.want, Relabel(tc.object, tc.claimed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSelectorsMatchLabels(t *testing.T) {
	mixed := matchLabels("color", "red")
	mixed.MatchExpressions = expression("size", metav1.LabelSelectorOpIn, "s", "m").MatchExpressions
	ambiguous := matchLabels("color", "red")
	ambiguous.MatchAll = true
	for name, tc := range map[string]struct {
		selector apisv1alpha2.PermissionClaimSelector
		object   map[string]string
		want     bool
		err      string
	}{
		"all":                        {all, nil, true, ""},
		"a label":                    {red, map[string]string{"color": "red", "x": "y"}, true, ""},
		"another value":              {red, map[string]string{"color": "blue"}, false, ""},
		"no labels":                  {red, nil, false, ""},
		"an expression":              {expression("a", metav1.LabelSelectorOpDoesNotExist), nil, true, ""},
		"an expression that is not":  {expression("a", metav1.LabelSelectorOpExists), nil, false, ""},
		"both":                       {mixed, map[string]string{"color": "red", "size": "m"}, true, ""},
		"both, and one is not":       {mixed, map[string]string{"color": "red", "size": "l"}, false, ""},
		"an empty one is no matter":  {apisv1alpha2.PermissionClaimSelector{}, nil, false, "must have matchAll, matchLabels or matchExpressions"},
		"an ambiguous one":           {ambiguous, map[string]string{"color": "red"}, false, "must have neither"},
		"an operator that is not":    {expression("a", "Like", "b"), nil, false, "not a valid label selector operator"},
		"an operator without values": {expression("a", metav1.LabelSelectorOpIn), nil, false, "values set can't be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Selects(&tc.selector, tc.object)
			if got != tc.want || !strings.Contains(fmt.Sprint(err), tc.err) || (err != nil) != (tc.err != "") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestCompleteAddsTheLabelsThatASelectorRequires(t *testing.T) {
	in := expression("size", metav1.LabelSelectorOpIn, "s")
	for name, tc := range map[string]struct {
		selector     apisv1alpha2.PermissionClaimSelector
		object, want map[string]string
		err          string
	}{
		"all":            {all, nil, nil, ""},
		"missing":        {red, nil, map[string]string{"color": "red"}, ""},
		"there":          {red, map[string]string{"color": "red", "a": "b"}, map[string]string{"color": "red", "a": "b"}, ""},
		"different":      {red, map[string]string{"color": "blue"}, nil, "protected label color must have value red"},
		"an expression":  {in, map[string]string{"size": "s"}, map[string]string{"size": "s"}, ""},
		"nothing for it": {in, nil, nil, "the labels must match size in (s), the selector of the accepted permission claim"},
		"no selector":    {apisv1alpha2.PermissionClaimSelector{}, nil, nil, "a selector must have matchAll, matchLabels or matchExpressions"},
	} {
		got, err := Complete(&tc.selector, tc.object)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (err != nil || tc.err != "") && fmt.Sprint(err) != tc.err {
			t.Errorf("%s: error %q, want %q", name, err, tc.err)
		}
	}
}

func TestCompareReturnsTheRequiredChanges(t *testing.T) {
	a, b, c := scoped("a", all, "get"), scoped("b", all), scoped("c.example.io:id", red)
	list := func(claims ...apisv1alpha2.ScopedPermissionClaim) []apisv1alpha2.ScopedPermissionClaim { return claims }
	for name, tc := range map[string]struct {
		exported          []apisv1alpha2.PermissionClaim
		accepted, applied []apisv1alpha2.ScopedPermissionClaim
		want              Comparison
	}{
		"nothing":          {nil, nil, nil, Comparison{}},
		"a new claim":      {[]apisv1alpha2.PermissionClaim{claim("a")}, list(a), nil, Comparison{Expected: list(a), Apply: list(a)}},
		"an applied claim": {[]apisv1alpha2.PermissionClaim{claim("a")}, list(a), list(a), Comparison{Expected: list(a)}},
		"not accepted":     {[]apisv1alpha2.PermissionClaim{claim("a")}, nil, nil, Comparison{}},
		"not exported":     {nil, list(a), nil, Comparison{Unexpected: list(a)}},
		"no longer exported, still labelled": {nil, list(a), list(a),
			Comparison{Unexpected: list(a)}},
		"no longer accepted": {[]apisv1alpha2.PermissionClaim{claim("a")}, nil, list(a), Comparison{Remove: list(a)}},
		"another identity": {[]apisv1alpha2.PermissionClaim{claim("c.example.io:other")}, list(c), nil,
			Comparison{Unexpected: list(c)}},
		"another selector": {[]apisv1alpha2.PermissionClaim{claim("c.example.io:id")}, list(c), list(scoped("c.example.io:id", blue)),
			Comparison{Expected: list(c), Reselect: list(c)}},
		"other verbs are no matter of labels": {[]apisv1alpha2.PermissionClaim{claim("a")}, list(a), list(scoped("a", all, "delete")),
			Comparison{Expected: list(a)}},
		"but whether objects can be listed is": {[]apisv1alpha2.PermissionClaim{claim("a")}, list(a), list(scoped("a", all, "list")),
			Comparison{Expected: list(a), Reselect: list(a)}},
		"several": {[]apisv1alpha2.PermissionClaim{claim("a"), claim("b")}, list(a, b, c), list(b),
			Comparison{Expected: list(a, b), Unexpected: list(c), Apply: list(a)}},
	} {
		t.Run(name, func(t *testing.T) {
			bound := binding("x", accepted(tc.accepted...)...)
			bound.Status.AppliedPermissionClaims = tc.applied
			if diff := cmp.Diff(tc.want, Compare(tc.exported, bound)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerbsAreAllowedByBothSides(t *testing.T) {
	for _, tc := range []struct {
		exported, accepted, verb string
		want                     bool
	}{
		{"get list", "get", "get", true},
		{"get list", "get", "list", false},
		{"*", "*", "delete", true},
		{"*", "get", "get", false}, // "*" is an ordinary verb
		{"* get", "get", "get", true},
		{"* get", "get", "*", false},
		{"", "", "get", false},
	} {
		effective := EffectiveVerbs(strings.Fields(tc.exported), strings.Fields(tc.accepted))
		if got := Allows(effective, tc.verb); got != tc.want {
			t.Errorf("%q exported, %q accepted, %s: %v", tc.exported, tc.accepted, tc.verb, got)
		}
	}
}

func TestMismatchesAreDescribedForUsers(t *testing.T) {
	withDefault := claim("b", "get")
	withDefault.DefaultSelector = &red
	exported := []apisv1alpha2.PermissionClaim{claim("a", "get", "list"), withDefault, claim("c", "*"), claim("d", "*", "get"), claim("e", "get")}
	got := Mismatches(exported, []apisv1alpha2.ScopedPermissionClaim{
		scoped("a", all, "get", "watch"), scoped("b", blue, "get"), scoped("c", all, "*"), scoped("d", all, "get"), scoped("e", all, "*"), scoped("z", all),
	})
	want := []Mismatch{{Key: Key{GroupResource: schema.GroupResource{Resource: "a"}}, Verbs: []string{"list", "watch"}},
		{Key: Key{GroupResource: schema.GroupResource{Resource: "b"}}, Verbs: []string{}, Selector: true},
		{Key: Key{GroupResource: schema.GroupResource{Resource: "e"}}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := List(got, 2), "a (verbs list, watch), b (selector) and 1 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// For all exported, accepted and applied claims: an accepted claim is either expected or not; applying the changes
// leaves nothing to do but what failed; and objects that are selected have the label, and no others.
func TestClaimsConverge(t *testing.T) {
	names := []string{"configmaps", "secrets", "events", "events.events.k8s.io", "widgets.example.io:a", "widgets.example.io:b"}
	selectors := []apisv1alpha2.PermissionClaimSelector{all, red, blue}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		some := func() (claims []apisv1alpha2.ScopedPermissionClaim) {
			for _, name := range names {
				if random.IntN(2) == 0 {
					claims = append(claims, scoped(name, selectors[random.IntN(3)], []string{"get", "*"}[random.IntN(2)]))
				}
			}
			return claims
		}
		var exported []apisv1alpha2.PermissionClaim
		for _, claim := range some() {
			exported = append(exported, claim.PermissionClaim)
		}
		b := binding("one", accepted(some()...)...)
		b.Status.AppliedPermissionClaims = some()
		c := Compare(exported, b)
		if len(c.Expected)+len(c.Unexpected) != len(b.Spec.PermissionClaims) {
			t.Fatalf("seed %d: %d claims are accepted, %d expected and %d not", seed, len(b.Spec.PermissionClaims), len(c.Expected), len(c.Unexpected))
		}
		failed := sets.New[Key]()
		for i := range c.Apply {
			if random.IntN(3) == 0 {
				failed.Insert(KeyOf(&c.Apply[i].PermissionClaim))
			}
		}
		b.Status.AppliedPermissionClaims = c.Applied(failed)
		after := Compare(exported, b)
		if len(after.Remove)+len(after.Reselect) > 0 || len(after.Apply) != len(failed) || !equality.Semantic.DeepEqual(after.Expected, c.Expected) {
			t.Fatalf("seed %d: after all is done: %+v", seed, after)
		}
		for i := range c.Expected {
			accepting := &c.Expected[i]
			effective := EffectiveVerbs([]string{"get"}, accepting.Verbs)
			if effective.Has("get") != sets.New(accepting.Verbs...).Has("get") {
				t.Fatalf("seed %d: effective verbs %v", seed, effective)
			}
		}
		object := []map[string]string{nil, red.MatchLabels, blue.MatchLabels}[random.IntN(3)]
		name, identity, _ := strings.Cut(names[random.IntN(len(names))], ":")
		resource := schema.ParseGroupResource(name)
		labels, err := Labels(resource, identity, object, []*apisv1alpha2.APIBinding{b}, exportOf)
		want := false
		for _, claim := range Accepted(b) {
			selects, _ := Selects(&claim.Selector, object)
			want = want || selects && claim.IdentityHash == identity && Normalize(KeyOf(&claim.PermissionClaim).GroupResource) == Normalize(resource)
		}
		if err != nil || (len(labels) == 1) != want {
			t.Fatalf("seed %d: labels %v, %v", seed, labels, err)
		}
	}
}
