package operatortest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/operator/internal/scheme"
)

var update = flag.Bool("update", false, "write the built objects to the golden files")

// Golden compares objects with a golden file, so that reviews show changes that affect every installation.
func Golden(t *testing.T, file string, objects []client.Object) {
	t.Helper()
	var got []byte
	for _, object := range objects {
		got = append(got, document(t, object)...)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run the tests with -update if this is wanted in %s:\n%s", file, diff)
	}
}

func document(t *testing.T, object client.Object) []byte {
	t.Helper()
	gvk, err := apiutil.GVKForObject(object, scheme.New())
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status")
	encoded, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("---\n"), encoded...)
}
