package workspaces

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// home asks for the home of user, and returns its logical cluster.
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

func TestEveryUserHasAHomeOfTheirOwn(t *testing.T) {
	t.Parallel()
	ws, own := home(t, kcptest.Victor)
	phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
	url, _, _ := unstructured.NestedString(ws.Object, "spec", "URL")
	if own.Name != homeOfVictor || phase != "Ready" || !strings.HasSuffix(url, "/clusters/"+own.Name) {
		t.Errorf("the home is %v", ws.Object)
	}
	// Its owner can do everything there, workspaces included, under both of its names.
	own.CreateWorkspace(t, kcptest.Victor, kcptest.Workspace("project-"+kcptest.Suffix(), "", ""))
	named := server.Named("user:" + kcptest.Victor.Name)
	if _, err := named.Kube(t, kcptest.Victor).CoreV1().Secrets("default").List(kcptest.Context(t), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	again, same := home(t, kcptest.Victor)
	if same.Name != own.Name || again.GetCreationTimestamp() != ws.GetCreationTimestamp() {
		t.Errorf("the second time it is %s, made %s", same.Name, again.GetCreationTimestamp())
	}
	// Others have another one, and no way into this.
	_, other := home(t, kcptest.Bob)
	if other.Name == own.Name {
		t.Error("two users have the same home")
	}
	_, err := own.Kube(t, kcptest.Bob).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

// The names of users have colons in them as well, by the prefix of their issuer for one.
func TestNobodyMakesTheHomeOfSomebodyElse(t *testing.T) {
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
		t.Errorf("the path of the home in %s is %s, as that of %s is", cluster, path, toys.Name)
	}
}

func TestWhoIsNobodyHasNoHome(t *testing.T) {
	t.Parallel()
	workspaces := server.Named("root").Dynamic(t, kcptest.Anonymous).Resource(kcptest.Workspaces)
	_, err := workspaces.Get(kcptest.Context(t), "~", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("anonymous is told %v", err)
	}
	// The name of a service account is that of others elsewhere: they would have one home together.
	elsewhere := server.Cluster(t)
	token, err := elsewhere.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").CreateToken(kcptest.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := kcptest.User{Name: "system:serviceaccount:default:default", Token: token.Status.Token}
	_, err = server.Named("root").Dynamic(t, robot).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// Only root has homes, and they cannot be changed there.
	org := server.Organization(t, kcptest.Alice)
	_, err = org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Get(kcptest.Context(t), "~", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	err = server.Named("root").Dynamic(t, kcptest.Stranger).Resource(kcptest.Workspaces).Delete(kcptest.Context(t), "~", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestAHomeTakesAGroupThatMayHaveOne(t *testing.T) {
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
		t.Errorf("bob is told %v", err)
	}
}
