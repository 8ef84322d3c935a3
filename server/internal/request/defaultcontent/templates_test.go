package defaultcontent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// registries completes objects as registries do, with a UID and times that are the same in each of its objects.
type registries struct {
	completed int
	err       error
}

func (r *registries) Create(context.Context, runtime.Object) error {
	return errors.New("nothing is stored by registries")
}

func (r *registries) Complete(_ context.Context, obj runtime.Object) (runtime.Object, error) {
	r.completed++
	complete := obj.DeepCopyObject()
	m := complete.(metav1.Object)
	m.SetUID("template")
	m.SetCreationTimestamp(metav1.NewTime(time.Unix(1, 0)))
	m.SetLabels(map[string]string{"completed": "true"})
	return complete, r.err
}

func TestTheDefaultObjectsOfEveryLogicalClusterAreCompletedOnce(t *testing.T) {
	made, r := &templates{}, &registries{}
	began := time.Now().Add(-time.Second)
	var uids []string
	for range 3 {
		for _, namespace := range namespaces {
			content, err := made.content(t.Context(), namespace, []byte("certificates"), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range content {
				m := obj.(metav1.Object)
				if m.GetUID() == "template" || slices.Contains(uids, string(m.GetUID())) {
					t.Errorf("%T has the UID of another object", obj)
				}
				uids = append(uids, string(m.GetUID()))
				if m.GetCreationTimestamp().Time.Before(began) || m.GetLabels()["completed"] != "true" {
					t.Errorf("got %v", obj)
				}
				for _, fields := range m.GetManagedFields() {
					if fields.Time.Before(&metav1.Time{Time: began}) {
						t.Errorf("the fields of %T were set at %s", obj, fields.Time)
					}
				}
				m.SetAnnotations(map[string]string{"kcp.io/cluster": "a"})
				m.GetLabels()["changed"] = "by the storage of one cluster"
			}
		}
	}
	if r.completed != 6 || len(uids) != 18 {
		t.Errorf("completed %d of %d objects, want the six that all logical clusters have", r.completed, len(uids))
	}
	for _, namespace := range namespaces {
		for _, template := range made.of[namespace] {
			m := template.(metav1.Object)
			if m.GetUID() != "template" || len(m.GetLabels()) != 1 || m.GetAnnotations()["kcp.io/cluster"] != "" {
				t.Errorf("the template of %T was changed: %v", template, template)
			}
		}
	}
	first := made.of[metav1.NamespaceDefault][0].(*corev1.Namespace)
	if first.Name != metav1.NamespaceDefault {
		t.Errorf("the first template is %v", first)
	}
}

// For example, because a part of the first logical cluster exists already.
func TestAFailedCompletionIsRepeated(t *testing.T) {
	made, r := &templates{}, &registries{err: errors.New("it exists")}
	if _, err := made.content(t.Context(), "default", nil, r); !errors.Is(err, r.err) {
		t.Errorf("got %v", err)
	}
	r.err = nil
	if content, err := made.content(t.Context(), "default", nil, r); err != nil || len(content) != 3 {
		t.Errorf("got %d objects, %v", len(content), err)
	}
}
