package instances

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var resource = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

func TestOnlyObjectsOfADefinitionAreDeletedWithIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		served  []bool // the responses, in order; then the last one again
		deleted []types.UID
	}{
		{"its own", []bool{true}, []types.UID{"1", "2"}},
		{"those of another", []bool{false}, nil},
		{"those of another that came while they were listed", []bool{true, false}, nil},
	} {
		scheme := fake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		object := func(name string, uid types.UID) runtime.Object {
			return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Widget"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
		}
		client := fake.NewSimpleMetadataClient(scheme, object("a", "1"), object("b", "2"))
		served := func() bool {
			now := c.served[0]
			if len(c.served) > 1 {
				c.served = c.served[1:]
			}
			return now
		}
		if left, err := DeleteOwn(t.Context(), client, resource, served); err != nil || left != 0 {
			t.Errorf("%s: %d left, %v", c.name, left, err)
		}
		var deleted []types.UID
		for _, action := range client.Actions() {
			if d, ok := action.(clienttesting.DeleteAction); ok {
				if p := d.GetDeleteOptions().Preconditions; p == nil || p.UID == nil {
					t.Errorf("%s: %s is deleted whichever object it is", c.name, d.GetName())
				} else {
					deleted = append(deleted, *p.UID)
				}
			}
		}
		slices.Sort(deleted)
		if !slices.Equal(deleted, c.deleted) {
			t.Errorf("%s: deleted %v, want %v", c.name, deleted, c.deleted)
		}
	}
}
