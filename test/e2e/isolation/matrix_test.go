package isolation

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// refusals is the page that TestRefusalsMatchDocumentation checks. UPDATE=1 writes it.
var refusals = filepath.Join("..", "..", "..", "docs", "refusals.md")

const refusalsHead = `# Refusals

This table lists the status code of each endpoint for each kind of user. ` + "`TestRefusalsMatchDocumentation`" + ` in ` + "`test/e2e/isolation`" + `
compares it with a server, and fails when a response changes; ` + "`UPDATE=1`" + ` updates this page. *ours* is a logical cluster, *theirs* is
another one on the same shard. Writes are dry runs. Requests of a service account without a cluster in the path go to its own cluster.

| user | description |
|---|---|
| anonymous | a client without credentials |
| stranger | a user without permissions |
| neighbour | a user with ` + "`cluster-admin`" + ` in *theirs* |
| their robot | a service account of *theirs* with ` + "`cluster-admin`" + ` there; an account of the same name with the same role exists in *ours* |
| viewer | a user with access to *ours* and the role ` + "`view`" + ` |
| admin | a user with ` + "`cluster-admin`" + ` in *ours* |
| robot | a service account of *ours* with ` + "`cluster-admin`" + ` there |
| master | a member of ` + "`system:masters`" + ` |

`

// endpoint is a kind of request. OURS in its path stands for the name of the cluster.
type endpoint struct {
	method, path, body string
	header             http.Header
}

const (
	review = `{"apiVersion":"authorization.k8s.io/v1","kind":"%s","spec":{%s"resourceAttributes":{"verb":"get","resource":"secrets"}}}`
	binds  = `{"metadata":{"name":"grab"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`
)

var endpoints = []endpoint{
	{method: "GET", path: "/clusters/OURS/api/v1/namespaces"},
	{method: "GET", path: "/clusters/OURS/api/v1/namespaces/default/configmaps"},
	{method: "GET", path: "/clusters/OURS/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1"},
	{method: "GET", path: "/clusters/OURS/api/v1/secrets"},
	{method: "POST", path: "/clusters/OURS/api/v1/namespaces/default/configmaps?dryRun=All", body: `{"metadata":{"name":"x"}}`},
	{method: "DELETE", path: "/clusters/OURS/api/v1/namespaces/default?dryRun=All"},
	{method: "DELETE", path: "/clusters/OURS/api/v1/namespaces/default/configmaps?dryRun=All"},
	{method: "POST", path: "/clusters/OURS/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?dryRun=All", body: binds},
	{method: "GET", path: "/clusters/OURS/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
	{method: "GET", path: "/clusters/OURS/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"},
	{method: "DELETE", path: "/clusters/OURS/apis/core.kcp.io/v1alpha1/logicalclusters/cluster?dryRun=All"},
	{method: "POST", path: "/clusters/OURS/api/v1/namespaces/default/serviceaccounts/default/token", body: `{"spec":{}}`},
	{method: "POST", path: "/clusters/OURS/apis/authentication.k8s.io/v1/tokenreviews", body: `{"spec":{"token":"x"}}`},
	{method: "POST", path: "/clusters/OURS/apis/authorization.k8s.io/v1/subjectaccessreviews", body: fmt.Sprintf(review, "SubjectAccessReview", `"user":"eve",`)},
	{method: "POST", path: "/clusters/OURS/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: fmt.Sprintf(review, "SelfSubjectAccessReview", "")},
	{method: "GET", path: "/clusters/OURS/api/v1/secrets", header: http.Header{"Impersonate-User": {"eve"}, "Impersonate-Group": {"system:masters"}}},
	{method: "GET", path: "/clusters/OURS/api"},
	{method: "GET", path: "/clusters/OURS/openapi/v2"},
	{method: "GET", path: "/clusters/OURS/version"},
	{method: "GET", path: "/clusters/OURS/readyz"},
	{method: "GET", path: "/clusters/OURS/metrics"},
	{method: "GET", path: "/clusters/OURS/debug/pprof/goroutine?debug=1"},
	{method: "PUT", path: "/clusters/OURS/debug/flags/v", body: "0"},
	{method: "GET", path: "/clusters/OURS/statusz"},
	{method: "GET", path: "/clusters/*/api/v1/configmaps"},
	{method: "GET", path: "/clusters/*/api/v1/configmaps?watch=true&timeoutSeconds=1"},
	{method: "POST", path: "/clusters/*/api/v1/namespaces/default/configmaps?dryRun=All", body: `{"metadata":{"name":"x"}}`},
	{method: "GET", path: "/clusters/root/api/v1/namespaces"},
	{method: "GET", path: "/clusters/system:admin/api/v1/namespaces"},
	{method: "GET", path: "/clusters/absent/api/v1/namespaces"},
	{method: "POST", path: "/clusters/absent/apis/core.kcp.io/v1alpha1/logicalclusters?dryRun=All", body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"}}`},
	{method: "GET", path: "/clusters/a%2fb/api"},
	{method: "GET", path: "/api/v1/namespaces"},
	{method: "GET", path: "/healthz"},
	{method: "GET", path: "/readyz"},
	{method: "GET", path: "/version"},
	{method: "GET", path: "/metrics"},
	{method: "GET", path: "/debug/pprof/"},
	{method: "GET", path: "/nothing"},
}

func TestRefusalsMatchDocumentation(t *testing.T) {
	t.Parallel()
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Grant(t, kcptest.Alice, "cluster-admin")
	ours.Grant(t, kcptest.Victor, "view")
	theirs.Grant(t, kcptest.Bob, "cluster-admin")
	identities := []struct {
		title string
		user  kcptest.User
	}{
		{"anonymous", kcptest.Anonymous}, {"stranger", kcptest.Stranger}, {"neighbour", kcptest.Bob}, {"their robot", robot(t, theirs)},
		{"viewer", kcptest.Victor}, {"admin", kcptest.Alice}, {"robot", robot(t, ours)}, {"master", kcptest.Masters},
	}
	var table bytes.Buffer
	table.WriteString(refusalsHead + "| endpoint |")
	for _, identity := range identities {
		table.WriteString(" " + identity.title + " |")
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(identities)) + "\n")
	for _, e := range endpoints {
		title := e.method + " " + strings.ReplaceAll(e.path, "OURS", "ours")
		if e.header != nil {
			title += " as a member of system:masters"
		}
		table.WriteString("| `" + title + "` |")
		for _, identity := range identities {
			header := e.header.Clone()
			if header == nil {
				header = http.Header{}
			}
			header.Set("Content-Type", "application/json")
			code, body := ours.Raw(t, identity.user, e.method, strings.ReplaceAll(e.path, "OURS", ours.Name), header, e.body)
			if code >= 400 && bytes.Contains(body, []byte(theirs.Name)) {
				t.Errorf("%s as %s: the response contains the name of another cluster: %.300s", title, identity.title, body)
			}
			fmt.Fprintf(&table, " %d |", code)
		}
		table.WriteString("\n")
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(refusals, table.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(refusals)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, table.Bytes()) {
		t.Errorf("docs/refusals.md is out of date, got:\n%s", table.Bytes())
	}
}

// robot returns the service account default/robot of a cluster, with cluster-admin there.
func robot(t *testing.T, c *kcptest.Cluster) kcptest.User {
	t.Helper()
	c.Kubectl(t, "create", "serviceaccount", "robot")
	c.Kubectl(t, "create", "clusterrolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot")
	user := kcptest.User{Name: "system:serviceaccount:default:robot", Token: strings.TrimSpace(c.Kubectl(t, "create", "token", "robot"))}
	kcptest.Eventually(t, "the robot has its permissions", func(ctx context.Context) error {
		_, err := c.Kube(t, user).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	})
	return user
}
