package defaultcontent

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
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

// storages add a label to the objects that they read.
type storages struct{ read int }

func (s *storages) Create(context.Context, metav1.Object) error {
	return errors.New("nothing is stored")
}

func (s *storages) AsRead(obj runtime.Object) (runtime.Object, error) {
	s.read++
	read := obj.DeepCopyObject()
	read.(metav1.Object).GetLabels()["read"] = "true"
	return read, nil
}

// writerOf returns a Writer with registries and the storages of all default objects.
func writerOf(r *registries, s *storages) *Writer {
	e := &Writer{Creator: r, CA: []byte("certificates"), Storages: map[reflect.Type]Storage{}}
	for _, obj := range append(contentOf(metav1.NamespaceDefault, nil), &rbacv1.ClusterRoleBinding{}) {
		e.Storages[reflect.TypeOf(obj)] = s
	}
	return e
}

func TestTheDefaultObjectsOfEveryLogicalClusterAreCompletedOnce(t *testing.T) {
	r, s := &registries{}, &storages{}
	e := writerOf(r, s)
	began := time.Now().Add(-time.Second)
	var uids []string
	for range 3 {
		for _, namespace := range namespaces {
			content, err := e.content(t.Context(), namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range content {
				m := obj.(metav1.Object)
				if m.GetUID() == "template" || slices.Contains(uids, string(m.GetUID())) {
					t.Errorf("%T has the UID of another object", obj)
				}
				uids = append(uids, string(m.GetUID()))
				created := m.GetCreationTimestamp()
				if created.Time.Before(began) || created.Nanosecond() != 0 || m.GetLabels()["completed"] != "true" || m.GetLabels()["read"] != "true" {
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
	if r.completed != 6 || s.read != 6 || len(uids) != 18 {
		t.Errorf("completed %d and read %d of %d objects, want the six that all logical clusters have", r.completed, s.read, len(uids))
	}
	for _, namespace := range namespaces {
		for _, template := range e.templates.of[namespace] {
			m := template.(metav1.Object)
			if m.GetUID() != "template" || len(m.GetLabels()) != 2 || m.GetAnnotations()["kcp.io/cluster"] != "" {
				t.Errorf("the template of %T was changed: %v", template, template)
			}
		}
	}
	first := e.templates.of[metav1.NamespaceDefault][0].(*corev1.Namespace)
	if first.Name != metav1.NamespaceDefault {
		t.Errorf("the first template is %v", first)
	}
}

// For example, because a part of the first logical cluster exists already.
func TestAFailedCompletionIsRepeated(t *testing.T) {
	r := &registries{err: errors.New("it exists")}
	e := writerOf(r, &storages{})
	if _, err := e.content(t.Context(), "default"); !errors.Is(err, r.err) {
		t.Errorf("got %v", err)
	}
	r.err = nil
	if content, err := e.content(t.Context(), "default"); err != nil || len(content) != 3 {
		t.Errorf("got %d objects, %v", len(content), err)
	}
}

func TestTheRoleBindingsOfAllOwnersAreCompletedOnce(t *testing.T) {
	r, s := &registries{}, &storages{}
	e := writerOf(r, s)
	var made []*rbacv1.ClusterRoleBinding
	for _, owner := range []string{"alice", "bob"} {
		lc := &corev1alpha1.LogicalCluster{Spec: corev1alpha1.LogicalClusterSpec{CreatedBy: &corev1alpha1.UserInfo{Username: owner}}}
		wanted, ok := authorization.OwnersBinding(lc)
		if !ok {
			t.Fatal("the logical cluster has no owner")
		}
		obj, err := e.ownersBinding(t.Context(), wanted)
		if err != nil {
			t.Fatal(err)
		}
		got := obj.(*rbacv1.ClusterRoleBinding)
		if diff := cmp.Diff(wanted.Subjects, got.Subjects); diff != "" || got.RoleRef != wanted.RoleRef || got.Labels["read"] != "true" {
			t.Errorf("of %s: %v", owner, got)
		}
		made = append(made, got)
	}
	if made[0].UID == made[1].UID || made[0].Subjects[0].Name != "alice" || r.completed != 1 {
		t.Errorf("completed %d objects: %v", r.completed, made)
	}
}
