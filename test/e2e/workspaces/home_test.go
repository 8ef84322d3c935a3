package workspaces

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// home requests the home of user, and returns it and its logical cluster.
func home(t *testing.T, user kcptest.User) (*unstructured.Unstructured, *kcptest.Cluster) {
	t.Helper()
	ws, err := server.Named("root").Dynamic(t, user).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(ws.Object, "spec", "cluster")
	return ws, server.Named(name)
}

// homeOfVictor is the logical cluster of Victor's home: a hash of the name, which must never change.
const homeOfVictor = "lwtc4e0skhrl"

func TestEveryUserHasTheirOwnHome(t *testing.T) {
	t.Parallel()
	ws, own := home(t, kcptest.Victor)
	phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
	url, _, _ := unstructured.NestedString(ws.Object, "spec", "URL")
	if own.Name != homeOfVictor || phase != "Ready" || !strings.HasSuffix(url, "/clusters/user:"+kcptest.Victor.Name) {
		t.Errorf("got home %v", ws.Object)
	}
	// Its owner has all permissions there, also for workspaces, with both of its names.
	own.CreateWorkspace(t, kcptest.Victor, kcptest.Workspace("project-"+kcptest.Suffix(), "", ""))
	byPath := server.Named("user:" + kcptest.Victor.Name)
	if _, err := byPath.Kube(t, kcptest.Victor).CoreV1().Secrets("default").List(kcptest.Context(t), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	again, same := home(t, kcptest.Victor)
	if difference := cmp.Diff(ws.Object, again.Object); same.Name != own.Name || difference != "" {
		t.Errorf("the second request returned another home: %s", difference)
	}
	// Other users have other homes, and no access to this one.
	_, other := home(t, kcptest.Bob)
	if other.Name == own.Name {
		t.Error("two users have the same home")
	}
	_, err := own.Kube(t, kcptest.Bob).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

// User names can also contain colons, for example after the prefix of their issuer.
func TestUserCannotCreateHomeOfAnotherUser(t *testing.T) {
	t.Parallel()
	name := "toys-" + kcptest.Suffix()
	config := server.Named("root").Config(kcptest.Masters)
	config.Impersonate = rest.ImpersonationConfig{UserName: kcptest.Victor.Name + ":" + name, Groups: []string{user.AllAuthenticated}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := client.Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, own := home(t, kcptest.Victor)
	toys := own.CreateWorkspace(t, kcptest.Victor, kcptest.Workspace(name, "", ""))
	cluster, _, _ := unstructured.NestedString(ws.Object, "spec", "cluster")
	if path := ws.GetAnnotations()["kcp.io/path"]; path != cluster {
		t.Errorf("the home in %s has the path %s, like workspace %s", cluster, path, toys.Name)
	}
}

func TestAnonymousUsersAndServiceAccountsHaveNoHome(t *testing.T) {
	t.Parallel()
	workspaces := server.Named("root").Dynamic(t, kcptest.Anonymous).Resource(kcptest.Workspaces)
	_, err := workspaces.Get(kcptest.Context(t), "~", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("anonymous user: got %v", err)
	}
	// Service accounts of different clusters have the same name: they would share a home.
	elsewhere := server.Cluster(t)
	token, err := elsewhere.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").CreateToken(kcptest.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := kcptest.User{Name: "system:serviceaccount:default:default", Token: token.Status.Token}
	_, err = server.Named("root").Dynamic(t, robot).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// Homes exist only in root, and cannot be changed there.
	org := server.Organization(t, kcptest.Alice)
	_, err = org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	err = server.Named("root").Dynamic(t, kcptest.Stranger).Resource(kcptest.Workspaces).Delete(kcptest.Context(t), "~", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestHomeRequiresPermittedGroup(t *testing.T) {
	t.Parallel()
	closed := kcptest.StartIn(t, t.TempDir(), "--home-workspaces-home-creator-groups=team-a")
	get := func(user kcptest.User) error {
		_, err := closed.Named("root").Dynamic(t, user).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
		return err
	}
	if err := get(kcptest.Alice); err != nil {
		t.Error(err)
	}
	err := get(kcptest.Bob)
	const want = `workspaces.tenancy.kcp.io "~" is forbidden: User "bob" cannot create resource "workspaces" in API group "tenancy.kcp.io" at the cluster scope: workspace access not permitted`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("bob: got %v", err)
	}
}

func TestUsersCanEnterRootBeforeControllersRun(t *testing.T) {
	t.Parallel()
	alone := kcptest.StartIn(t, t.TempDir(), "--run-controllers=false", "--home-workspaces-home-creator-groups=team-a")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "tenancy.kcp.io", Resource: "workspaces", Verb: "create", Name: "~"},
	}}
	got, err := alone.Named("root").Kube(t, kcptest.Alice).AuthorizationV1().SelfSubjectAccessReviews().Create(kcptest.Context(t), review, metav1.CreateOptions{})
	if err != nil || !got.Status.Allowed {
		t.Errorf("got %v, %v", got, err)
	}
}
