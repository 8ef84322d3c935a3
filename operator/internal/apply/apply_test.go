package apply_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "made"}, Data: data}
}

func owner(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

func TestObjectsAreWrittenOnceAndWhenTheyChange(t *testing.T) {
	c := operatortest.New()
	made := func(want map[string]string, writes int64) {
		t.Helper()
		if err := apply.All(t.Context(), c, owner("me"), configMap(want)); err != nil {
			t.Fatal(err)
		}
		if n := c.Writes(); n != writes {
			t.Errorf("%d writes, not %d", n, writes)
		}
	}
	made(map[string]string{"a": "1", "b": "2"}, 1)
	made(map[string]string{"a": "1", "b": "2"}, 0)
	live := operatortest.Read(t, c, "made", &corev1.ConfigMap{})
	live.Data["a"], live.Labels["theirs"] = "changed", "kept"
	c.MustUpdate(t, live)
	made(map[string]string{"a": "1", "b": "2"}, 1)
	made(map[string]string{"a": "1"}, 1)
	live = operatortest.Read(t, c, "made", &corev1.ConfigMap{})
	if diff := cmp.Diff(map[string]string{"a": "1"}, live.Data); diff != "" || live.Labels["theirs"] != "kept" {
		t.Errorf("labels %v, data %s", live.Labels, diff)
	}
}

func TestObjectsOfOthersAreNeitherChangedNorDeleted(t *testing.T) {
	for _, test := range []struct{ owner, message string }{
		{"", "ConfigMap made exists and was not created by the operator: delete it, or choose another name"},
		{"them", "ConfigMap made exists and belongs to Namespace them: delete it, or choose another name"},
	} {
		theirs := configMap(map[string]string{"a": "theirs"})
		if test.owner != "" {
			theirs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner(test.owner), corev1.SchemeGroupVersion.WithKind("Namespace"))}
		}
		c := operatortest.New(theirs)
		err := apply.All(t.Context(), c, owner("me"), configMap(map[string]string{"a": "mine"}))
		var taken *apply.TakenError
		if !errors.As(err, &taken) || err.Error() != test.message {
			t.Errorf("got %v", err)
		}
		if err := apply.Remove(t.Context(), c, owner("me"), configMap(nil)); err != nil || c.Writes() != 0 {
			t.Errorf("it was written to (%v)", err)
		}
	}
}

func TestRemoveDeletesObjectsOfTheOwner(t *testing.T) {
	c := operatortest.New()
	if err := apply.All(t.Context(), c, owner("me"), configMap(nil)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := apply.Remove(t.Context(), c, owner("me"), configMap(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), operatortest.Key("made"), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestKeptObjectsHaveNoOwnerAndTheNextOneOfTheSameNameTakesThemOver(t *testing.T) {
	c := operatortest.New()
	first, next := owner("me"), owner("me")
	next.UID = "another"
	if err := apply.All(t.Context(), c, first, configMap(map[string]string{"a": "1"})); err != nil { // as an older operator did
		t.Fatal(err)
	}
	for _, by := range []*corev1.Namespace{first, next} {
		if err := apply.Keep(t.Context(), c, by, configMap(map[string]string{"a": "1"})); err != nil {
			t.Fatal(err)
		}
		if owners := operatortest.Read(t, c, "made", &corev1.ConfigMap{}).OwnerReferences; len(owners) > 0 {
			t.Errorf("it has the owners %v", owners)
		}
	}
	const message = "ConfigMap made exists and belongs to Namespace me: delete it, or choose another name"
	for what, err := range map[string]error{
		"kept for another owner":      apply.Keep(t.Context(), c, owner("other"), configMap(nil)),
		"applied by its former owner": apply.All(t.Context(), c, first, configMap(nil)),
	} {
		if err == nil || err.Error() != message {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
