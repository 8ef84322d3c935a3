package manifests

import "testing"

func TestManifestsAreDivided(t *testing.T) {
	objects, err := Parse("kind: A\n---\nkind: B\nmetadata: {name: b}\n")
	if err != nil || len(objects) != 2 || objects[0].GetKind() != "A" || objects[1].GetName() != "b" {
		t.Errorf("the objects are %v, %v", objects, err)
	}
	if objects, err := Parse("kind: A\n---\n- no object\n"); err == nil {
		t.Errorf("a list is %v", objects)
	}
}
