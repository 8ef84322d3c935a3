package kcpaccess

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRoleBindingsMatchTheRolesAndOthersRemain(t *testing.T) {
	theirs := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	changed := Roles{ID: "id", Group: "another", ClusterRoles: []string{"view"}}.bindings()["id:view"]
	client := fake.NewClientset(theirs, changed).RbacV1().ClusterRoleBindings()
	for _, test := range []struct {
		roles []string
		want  []string
	}{
		{[]string{"view", "edit"}, []string{"id:edit", "id:view", "theirs"}},
		{[]string{"edit"}, []string{"id:edit", "theirs"}},
		{nil, []string{"theirs"}},
	} {
		roles := Roles{ID: "id", Group: "group", ClusterRoles: test.roles}
		if err := bind(t.Context(), client, roles); err != nil {
			t.Fatal(err)
		}
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, binding := range list.Items {
			got = append(got, binding.Name)
			if binding.Name != "theirs" && binding.Subjects[0].Name != "group" {
				t.Errorf("%s is bound to %+v", binding.Name, binding.Subjects)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: %s", test.roles, diff)
		}
	}
}

func TestABundleHasEachCAOnceAndNothingElse(t *testing.T) {
	const one = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
	const two = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
	const key = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n"
	got := Bundle("ns", "name", nil, []byte(one), []byte("text\n"+key+two+one)).Data["tls.crt"]
	if diff := cmp.Diff(one+two, string(got)); diff != "" {
		t.Error(diff)
	}
	if CheckAuthorities([]byte(key)) == nil || CheckAuthorities([]byte("x\n"+one)) != nil {
		t.Error("a key counts as a CA, or a CA does not")
	}
}
