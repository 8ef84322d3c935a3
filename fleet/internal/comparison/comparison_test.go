package comparison

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/internal/crd"
	"github.com/kcplane/kcp/internal/crd/snapshot"
)

// gadget returns a definition whose objects have a size up to a limit.
func gadget(t *testing.T, most, field string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	list, err := crd.Read(strings.NewReader(strings.NewReplacer("MOST", most, "FIELD", field).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {FIELD: {type: integer, maximum: MOST}}}}}}
`)))
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func TestTheFirstDifferenceIsReportedWithItsPath(t *testing.T) {
	exported := gadget(t, "10", "size")
	schema, err := snapshot.Take(exported, "v1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := snapshot.Definition(schema)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 600)
	for name, test := range map[string]struct {
		served *apiextensionsv1.CustomResourceDefinition
		want   v1alpha1.ClusterResource
	}{
		"the same":    {gadget(t, "10", "size"), v1alpha1.ClusterResource{State: v1alpha1.ResourceAccepted}},
		"wider":       {gadget(t, "11", "size"), v1alpha1.ClusterResource{State: v1alpha1.ResourceAccepted}},
		"narrower":    {gadget(t, "9", "size"), v1alpha1.ClusterResource{State: v1alpha1.ResourceIncompatible, Field: "spec.size", Message: "maximum changes from 10 to 9"}},
		"not a field": {gadget(t, "10", "other"), v1alpha1.ClusterResource{State: v1alpha1.ResourceIncompatible, Field: "spec.size", Message: "is removed"}},
	} {
		got := compareWith(schema, again, test.served, storedVersion(schema))
		test.want.Group, test.want.Resource, test.want.Schema = "example.com", "gadgets", "v1.gadgets.example.com"
		if diff := cmp.Diff(&test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	wide, err := snapshot.Take(gadget(t, "10", long), "v1")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := snapshot.Definition(wide)
	if err != nil {
		t.Fatal(err)
	}
	if got := compareWith(wide, definition, exported, "v1"); len(got.Field) != longestField || got.State != v1alpha1.ResourceIncompatible {
		t.Errorf("the path has %d characters: %s", len(got.Field), got.State)
	}
	if got := compareWith(schema, again, exported, "v3"); got.State != v1alpha1.ResourceIncompatible || !strings.Contains(got.Message, "cannot be compared") {
		t.Errorf("a version that does not exist: %v", got)
	}
}

func TestAGroupThatIsUnavailableIsNotTakenForRemoved(t *testing.T) {
	schema, err := snapshot.Take(gadget(t, "10", "size"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	exported, err := json.Marshal([]any{schema})
	if err != nil {
		t.Fatal(err)
	}
	group := `{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}`
	for name, test := range map[string]struct {
		groups string
		state  v1alpha1.ResourceState // empty means unknown
	}{
		"the group is unavailable":   {group, ""},
		"another one is unavailable": {strings.ReplaceAll(group, "example", "another"), v1alpha1.ResourceIncompatible},
		"nothing is unavailable":     {"", v1alpha1.ResourceIncompatible},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/api":
				fmt.Fprint(w, `{"kind":"APIVersions","versions":[]}`)
			case "/apis":
				fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, test.groups)
			default:
				http.Error(w, "unavailable", http.StatusServiceUnavailable)
			}
		}))
		t.Cleanup(server.Close)
		var output bytes.Buffer
		if err := Run(t.Context(), &rest.Config{Host: server.URL}, bytes.NewReader(exported), &output); err != nil {
			t.Fatal(err)
		}
		result, state := Result{}, v1alpha1.ResourceState("")
		if err := json.Unmarshal(output.Bytes(), &result); err != nil {
			t.Fatal(err)
		}
		for _, r := range result.Resources {
			state = r.State
		}
		if state != test.state || (state == "") != (result.Error != "") {
			t.Errorf("%s: state %q, error %q", name, state, result.Error)
		}
	}
}
