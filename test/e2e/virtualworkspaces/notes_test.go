package virtualworkspaces

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var resource = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "notes"}

// writer is the role that a tenant grants to users of notes. It grants no permissions for ConfigMaps.
const writer = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: notes}
rules:
- {apiGroups: [example.org], resources: [notes], verbs: ["*"]}
- {nonResourceURLs: ["/api", "/api/*", "/apis", "/apis/*", "/openapi/*"], verbs: [get]}
`

func note(name, text string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Note", "metadata": map[string]any{"name": name}, "spec": map[string]any{"text": text},
	}}
}

// grant permits a user to use notes in a cluster, and waits until this takes effect.
func grant(t *testing.T, n notes, c *kcptest.Cluster, user kcptest.User) {
	t.Helper()
	c.Apply(t, writer)
	c.Kubectl(t, "create", "clusterrolebinding", "notes-"+user.Name, "--clusterrole=notes", "--user="+user.Name)
	c.Kubectl(t, "create", "clusterrolebinding", "access-"+user.Name, "--clusterrole="+kcptest.EntryRole, "--user="+user.Name)
	kcptest.Eventually(t, "the permission takes effect", func(ctx context.Context) error {
		_, err := n.in(t, user, c.Name).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestViewSupportsAllOperationsOfAPI(t *testing.T) {
	t.Parallel()
	n, c := start(t, server.Kubeconfig()), server.Cluster(t)
	ctx := kcptest.Context(t)
	grant(t, n, c, kcptest.Alice)
	kubectl := n.kubectl(t, kcptest.Alice, c)
	if out := kubectl("", "api-resources", "--no-headers"); len(strings.Split(strings.TrimSpace(out), "\n")) != 1 || !strings.Contains(out, "example.org/v1") {
		t.Errorf("the view has other resources than notes:\n%s", out)
	}
	if out := kubectl("", "explain", "notes.spec.text"); !strings.Contains(out, "Text of the note.") {
		t.Errorf("unexpected output of kubectl explain:\n%s", out)
	}
	seen, err := n.in(t, kcptest.Alice, c.Name).Namespace("default").Watch(ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	if e := <-seen.ResultChan(); e.Type != watch.Bookmark || e.Object.(*unstructured.Unstructured).GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the watch starts with %v", e)
	}
	kubectl("apiVersion: example.org/v1\nkind: Note\nmetadata: {name: one, labels: {list: shopping}}\nspec: {text: milk}\n", "apply", "-f", "-")
	if out := strings.Fields(kubectl("", "get", "notes", "--no-headers", "-l", "list=shopping")); strings.Join(out, " ") != "one milk yellow" {
		t.Errorf("got note %q", out)
	}
	if out := kubectl("", "get", "notes", "-o", "name", "--field-selector=metadata.name!=one"); out != "" {
		t.Errorf("got %s with a selector", out)
	}
	kubectl("", "patch", "note", "one", "--type=merge", "--patch", `{"spec":{"color":"green"}}`)
	_, err = n.in(t, kcptest.Alice, c.Name).Namespace("default").Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
	stored, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "one", metav1.GetOptions{})
	if err != nil || stored.Data["text"] != "milk" || stored.Data["color"] != "green" {
		t.Errorf("got ConfigMap %v, %v", stored, err)
	}
	stale := note("one", "too late")
	stale.SetResourceVersion("1")
	_, err = n.in(t, kcptest.Alice, c.Name).Namespace("default").Update(ctx, stale, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	kubectl("apiVersion: example.org/v1\nkind: Note\nmetadata: {name: two}\nspec: {text: applied}\n", "apply", "--server-side", "-f", "-")
	_, err = n.in(t, kcptest.Alice, c.Name).Namespace("default").Create(ctx, note("two", "again"), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonAlreadyExists)
	_, err = n.in(t, kcptest.Alice, c.Name).Namespace("default").Create(ctx, note("dry", "run"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Error(err)
	}
	kubectl("", "delete", "notes", "--all")
	var events []string
	for len(events) < 5 {
		e := <-seen.ResultChan()
		if e.Type != watch.Bookmark {
			events = append(events, string(e.Type)+" "+e.Object.(*unstructured.Unstructured).GetName())
		}
	}
	if got := strings.Join(events[:3], ", "); got != "ADDED one, MODIFIED one, ADDED two" {
		t.Errorf("the watch got %v", events)
	}
	if _, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
		t.Errorf("a ConfigMap that is not a note was deleted: %v", err)
	}
}

func TestOtherConfigMapsCannotBeReached(t *testing.T) {
	t.Parallel()
	n, c := start(t, server.Kubeconfig()), server.Cluster(t)
	ctx := kcptest.Context(t)
	grant(t, n, c, kcptest.Alice)
	private := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "private"}, Data: map[string]string{"text": "secret"}}
	if _, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, private, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := n.in(t, kcptest.Alice, c.Name).Namespace("default")
	_, err := client.Get(ctx, "private", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = client.Update(ctx, note("private", "taken"), metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = client.Patch(ctx, "private", types.MergePatchType, []byte(`{"metadata":{"labels":{"example.org/note":"true"}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	kcptest.WantReason(t, client.Delete(ctx, "private", metav1.DeleteOptions{}), metav1.StatusReasonNotFound)
	for _, selector := range []string{"", "example.org/note!=true", "!example.org/note"} {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(list.Items) != 0 {
			t.Errorf("selected by %q: %v, %v", selector, list, err)
		}
	}
	// Users cannot remove the label of a note.
	unlabelled := note("mine", "is a note")
	unlabelled.SetLabels(map[string]string{"example.org/note": "false"})
	made, err := client.Create(ctx, unlabelled, metav1.CreateOptions{})
	if err != nil || made.GetLabels()["example.org/note"] != "true" {
		t.Errorf("got labels %v, %v", made.GetLabels(), err)
	}
}

// Victor has no permissions in root: other tests let Alice and Bob administer it.
func TestViewIsolatesTenants(t *testing.T) {
	t.Parallel()
	n, ours, theirs := start(t, server.Kubeconfig()), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	grant(t, n, ours, kcptest.Victor)
	grant(t, n, theirs, kcptest.Bob)
	if _, err := n.in(t, kcptest.Bob, theirs.Name).Namespace("default").Create(ctx, note("plan", "theirs"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{theirs.Name, "absent", "system:admin", "*"} {
		client := n.in(t, kcptest.Victor, cluster).Namespace("default")
		for what, err := range map[string]error{
			"list":   second(client.List(ctx, metav1.ListOptions{})),
			"watch":  second(client.Watch(ctx, metav1.ListOptions{})),
			"get":    second(client.Get(ctx, "plan", metav1.GetOptions{})),
			"create": second(client.Create(ctx, note("planted", "ours"), metav1.CreateOptions{})),
			"apply":  second(client.Apply(ctx, "planted", note("planted", "ours"), metav1.ApplyOptions{FieldManager: "x", Force: true})),
			"delete": client.Delete(ctx, "plan", metav1.DeleteOptions{}),
		} {
			if !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
				t.Errorf("%s in %s: %v", what, cluster, err)
			}
		}
	}
	path := "/services/notes/clusters/" + ours.Name + "/apis/example.org/v1/namespaces/default/notes"
	for what, attempt := range map[string]struct {
		user   kcptest.User
		path   string
		header http.Header
		want   int
	}{
		"an anonymous user":                      {kcptest.Anonymous, path, nil, 403},
		"an unknown token":                       {kcptest.User{Token: "guessed"}, path, nil, 401},
		"a stranger":                             {kcptest.Stranger, path, nil, 403},
		"discovery without permission":           {kcptest.Stranger, "/services/notes/clusters/" + ours.Name + "/apis", nil, 403},
		"identity headers without a front proxy": {kcptest.Anonymous, path, http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"system:masters"}}, 403},
		"impersonation":                          {kcptest.Victor, path, http.Header{"Impersonate-User": {"bob"}}, 403},
		"a path to another cluster":              {kcptest.Victor, "/services/notes/clusters/" + ours.Name + "/%2e%2e/" + theirs.Name + "/apis", nil, 400},
		"an escaped cluster":                     {kcptest.Victor, "/services/notes/clusters/%2a/apis/example.org/v1/notes", nil, 400},
		"another view":                           {kcptest.Victor, "/services/apiexport/root/x/clusters/*/apis", nil, 404},
		"kcp itself":                             {kcptest.Masters, "/clusters/" + ours.Name + "/api/v1/secrets", nil, 404},
		"ConfigMaps":                             {kcptest.Masters, "/services/notes/clusters/" + ours.Name + "/api/v1/configmaps", nil, 404},
		"all clusters without permission":        {kcptest.Victor, "/services/notes/clusters/*/apis/example.org/v1/notes", nil, 403},
	} {
		code, body, err := n.request(ctx, attempt.user, http.MethodGet, attempt.path, attempt.header)
		if err != nil || code != attempt.want {
			t.Errorf("%s: got %d %s %v, want %d", what, code, body, err, attempt.want)
		}
		if strings.Contains(body, "theirs") {
			t.Errorf("%s: the response contains %s", what, body)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestServiceAccountReachesNotesOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	n, ours, theirs := start(t, server.Kubeconfig()), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	robot := kcptest.User{Name: "system:serviceaccount:default:default"}
	token, err := ours.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot.Token = token.Status.Token
	for _, c := range []*kcptest.Cluster{ours, theirs} { // the accounts with the same name are different
		c.Apply(t, writer)
		c.Kubectl(t, "create", "clusterrolebinding", "notes-robot", "--clusterrole=notes", "--serviceaccount=default:default")
	}
	kcptest.Eventually(t, "the permission takes effect", func(ctx context.Context) error {
		_, err := n.in(t, robot, ours.Name).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := n.in(t, robot, ours.Name).Namespace("default").Create(ctx, note("of-a-robot", "x"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	_, err = n.in(t, robot, theirs.Name).Namespace("default").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestPoliciesOfClusterSeeUserOfView(t *testing.T) {
	t.Parallel()
	n, c := start(t, server.Kubeconfig()), server.Cluster(t)
	ctx := kcptest.Context(t)
	grant(t, n, c, kcptest.Alice)
	grant(t, n, c, kcptest.Bob)
	c.Apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: alice-only}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: 'request.userInfo.username == "alice"', messageExpression: '"not for " + request.userInfo.username'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: alice-only}
spec: {policyName: alice-only, validationActions: [Deny]}
`)
	kcptest.Eventually(t, "the policy applies to Bob", func(ctx context.Context) error {
		_, err := n.in(t, kcptest.Bob, c.Name).Namespace("default").Create(ctx, note("of-bob-"+kcptest.Suffix(), "x"), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "not for bob") {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Message: "created, or refused for another reason: " + errorText(err)}}
		}
		return nil
	})
	if _, err := n.in(t, kcptest.Alice, c.Name).Namespace("default").Create(ctx, note("of-alice", "x"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func TestViewOfAllClustersRequiresPermission(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	server.Named("root").WriteKubeconfig(t, kubeconfig, kcptest.Masters)
	n := start(t, kubeconfig)
	ctx := kcptest.Context(t)
	everywhere := n.in(t, kcptest.Masters, "*")
	all, err := everywhere.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := everywhere.Watch(ctx, metav1.ListOptions{ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	for _, c := range []*kcptest.Cluster{server.Cluster(t), server.Cluster(t)} {
		if _, err := n.in(t, kcptest.Masters, c.Name).Namespace("default").Create(ctx, note("of-"+c.Name, "x"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for {
			made := (<-seen.ResultChan()).Object.(*unstructured.Unstructured)
			if made.GetName() == "of-"+c.Name {
				if cluster := made.GetAnnotations()["kcp.io/cluster"]; cluster != c.Name {
					t.Errorf("the note of %s has the cluster %q", c.Name, cluster)
				}
				break
			}
		}
	}
	_, err = everywhere.Namespace("default").Create(ctx, note("nowhere", "x"), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	_, err = n.in(t, kcptest.Alice, "*").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

// A token of one workspace is not valid in another one, regardless of the order of requests.
func TestUsersOfWorkspaceIssuerReachItsNotes(t *testing.T) {
	t.Parallel()
	issuer, err := kcptest.NewIssuer(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	org := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("trusting-"+kcptest.Suffix(), "", ""))
	org.Apply(t, issuer.TrustedBy("tenanted", issuer.CA()))
	org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", "tenanted"))
	org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("plain", "", "universal"))
	token, err := issuer.Token(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	n, jane, ctx := start(t, server.Kubeconfig()), kcptest.User{Name: "jane", Token: token}, kcptest.Context(t)
	plain, absent := org.GetWorkspace(t, "plain").Spec.Cluster, "absent"
	elsewhere := func() {
		for _, cluster := range []string{plain, absent, "*"} {
			_, err := n.in(t, jane, cluster).Namespace("default").List(ctx, metav1.ListOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
		}
	}
	elsewhere()
	team := server.Named(org.GetWorkspace(t, "team").Spec.Cluster)
	grant(t, n, team, jane)
	if _, err := n.in(t, jane, team.Name).Namespace("default").Create(ctx, note("hers", "milk"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	elsewhere()
	if _, err := n.in(t, kcptest.Masters, absent).Namespace("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("a user of the server, in a cluster that does not exist: got %v", err)
	}
}
