package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// definition writes a file with a definition whose spec has the given properties.
func definition(t *testing.T, properties string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, kind: Widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: `+properties+`}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCrdCompat(t *testing.T) {
	u := at(t, forest(t), "/clusters/root")
	wide, narrow, other := definition(t, "{a: {type: number}, b: {type: string}}"), definition(t, "{a: {type: integer}}"), definition(t, "{a: {type: string}}")
	u.prints("", "kcp", "crd", "compat", narrow, narrow)
	stdout, _, err := u.run("kcp", "crd", "compat", wide, narrow)
	if want := "  v1: spec.a: type changes from number to integer\n  v1: spec.b: is removed\n"; stdout != want ||
		err == nil || err.Error() != "widgets.example.com: the new definition is not compatible: 2 differences" {
		t.Errorf("%q, %v", stdout, err)
	}
	stdout, stderr, err := u.run("kcp", "crd", "compat", wide, narrow, "--lcd")
	if err != nil || !strings.Contains(stderr, "v1: spec.b: is removed") || !strings.Contains(stdout, "type: integer") || strings.Contains(stdout, "number") {
		t.Errorf("%q, %q, %v", stdout, stderr, err)
	}
	stdout, stderr, err = u.run("kcp", "crd", "compat", wide, other, "--lcd", "-o", "json")
	if stdout != "" || !strings.Contains(stderr, "! v1: spec.a: type changes from number to string") ||
		err == nil || !strings.Contains(err.Error(), "no least common denominator: 1 of 2 differences are conflicts") {
		t.Errorf("%q, %q, %v", stdout, stderr, err)
	}
	u.fails(`has no version "v2"`, "kcp", "crd", "compat", wide, narrow, "--old-version", "v1", "--new-version", "v2")
	u.fails("--new-version requires --old-version", "kcp", "crd", "compat", wide, narrow, "--new-version", "v1")
	u.fails("requires two files", "kcp", "crd", "compat", wide)
	u.fails("no such file", "kcp", "crd", "compat", wide, "absent")
	u.fails("reading standard input: no CustomResourceDefinition found", "kcp", "crd", "compat", wide, "-")
	u.fails("must be one of yaml, json", "kcp", "crd", "compat", wide, wide, "-o", "wide")
}

func TestCrdSnapshot(t *testing.T) {
	u := at(t, forest(t), "/clusters/root")
	file := definition(t, "{a: {type: integer}}")
	stdout, _, err := u.run("kcp", "crd", "snapshot", "-f", file, "-f", file, "--prefix", "v1")
	if err != nil || strings.Count(stdout, "name: v1.widgets.example.com\n") != 2 || strings.Count(stdout, "---\n") != 1 {
		t.Errorf("%q, %v", stdout, err)
	}
	if stdout, _, err = u.run("kcp", "crd", "snapshot", "-f", file, "-f", file, "--prefix", "v1", "-o", "json"); err != nil || !strings.Contains(stdout, `"kind": "List"`) {
		t.Errorf("%q, %v", stdout, err)
	}
	u.fails("--filename is required", "kcp", "crd", "snapshot", "--prefix", "v1")
	u.fails("--prefix is required", "kcp", "crd", "snapshot", "-f", file)
	u.fails("--prefix: must be lower case letters", "kcp", "crd", "snapshot", "-f", file, "--prefix", "1")
}
