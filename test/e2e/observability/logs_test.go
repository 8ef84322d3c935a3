package observability

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func logLines(t *testing.T) [][]byte {
	t.Helper()
	content, err := os.ReadFile(server.Log)
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndexByte(content, '\n') + 1 // the rest is incomplete
	return bytes.Split(bytes.TrimSpace(content[:end]), []byte("\n"))
}

func TestEveryLogLineIsJSON(t *testing.T) {
	server.Cluster(t)
	lines := logLines(t)
	ready := false
	for _, line := range lines {
		var entry struct {
			Time float64 `json:"ts"`
			Text string  `json:"msg"`
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Time == 0 {
			t.Errorf("%v in the line %s", err, line)
		}
		ready = ready || entry.Text == "kcp is ready"
	}
	if len(lines) < 20 || !ready {
		t.Errorf("the log of %d lines does not say that the server is ready", len(lines))
	}
}

func TestAStartWritesFewLinesAndNoWarnings(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--enable-leader-election"}} {
		quiet := kcptest.StartIn(t, t.TempDir(), flags...)
		content, err := os.ReadFile(quiet.Log)
		if err != nil {
			t.Fatal(err)
		}
		lines := linesWithoutWarnings(t, content)
		if lines < 5 || lines > 15 {
			t.Errorf("%s: the start wrote %d lines, want 5 to 15:\n%s", flags, lines, content)
		}
		for _, want := range []string{"Starting kcp", "Starting the embedded etcd", "Serving securely on", "kcp is ready at"} {
			if !strings.Contains(string(content), want) {
				t.Errorf("%s: the start does not log %q", flags, want)
			}
		}
	}
}

// linesWithoutWarnings returns the number of lines in a log, which must have no warnings and no errors.
func linesWithoutWarnings(t *testing.T, content []byte) int {
	t.Helper()
	lines := 0
	for _, line := range strings.Split(string(content), "\n") {
		if line == "" || strings.Contains(line, "mutation_detector.go:") { // only tests switch the detector on
			continue
		}
		if lines++; regexp.MustCompile(`^[EWF]\d{4} `).MatchString(line) {
			t.Errorf("a warning or an error: %s", line)
		}
	}
	return lines
}

func TestAWorkspaceThatWasUsedIsDeletedWithoutWarnings(t *testing.T) {
	t.Parallel()
	quiet := kcptest.StartIn(t, t.TempDir())
	root := quiet.Named("root")
	root.Apply(t, `{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: used}}`)
	root.Kubectl(t, "wait", "workspace/used", "--for=jsonpath={.status.phase}=Ready")
	used := quiet.Named("root:used")
	used.Kubectl(t, "get", "namespaces,configmaps,clusterroles", "--all-namespaces")
	used.Kubectl(t, "create", "configmap", "written", "--namespace=kube-system")
	root.Kubectl(t, "delete", "workspace", "used", "--timeout=1m")
	content, err := os.ReadFile(quiet.Log)
	if err != nil {
		t.Fatal(err)
	}
	linesWithoutWarnings(t, content)
}

// spread uses tokens in every place that accepts one, and returns those that must stay secret.
func spread(t *testing.T) map[string]string {
	t.Helper()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "serviceaccount", "robot")
	cluster.Kubectl(t, "create", "clusterrolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot")
	core := cluster.Kube(t, kcptest.Masters).CoreV1()
	secrets := map[string]string{kcptest.Masters.Name: kcptest.Masters.Token, kcptest.Alice.Name: kcptest.Alice.Token}
	requested, err := core.ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets["requested"] = requested.Status.Token
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}}
	stored.Type = corev1.SecretTypeServiceAccountToken
	if _, err := core.Secrets("default").Create(ctx, stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the secret has a token", func(ctx context.Context) error {
		filled, err := core.Secrets("default").Get(ctx, "robot", metav1.GetOptions{})
		if err != nil || len(filled.Data["token"]) == 0 {
			return fmt.Errorf("got %d keys, %w", len(filled.Data), err)
		}
		secrets["stored"] = string(filled.Data["token"])
		return nil
	})
	administrators, err := clientcmd.LoadFromFile(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, u := range administrators.AuthInfos {
		secrets[name] = u.Token
	}
	secrets["unknown"] = "a-token-of-no-user-" + kcptest.Suffix()

	for name, token := range secrets {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if _, err := cluster.Kube(t, kcptest.Masters).AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		user := kcptest.User{Name: name, Token: token}
		for _, path := range []string{"/clusters/" + cluster.Name + "/api/v1/namespaces", "/api/v1/namespaces", "/metrics", "/clusters/none/api"} {
			get(t, user, path)
		}
		protocols := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io"
		websocket := http.Header{"Sec-Websocket-Protocol": {protocols}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Authorization": {"Basic " + token}}
		cluster.Raw(t, kcptest.Anonymous, http.MethodGet, "/clusters/"+cluster.Name+"/api/v1/namespaces?watch=true&timeoutSeconds=1", websocket, "")
	}
	return secrets
}

func TestLogContainsNoTokens(t *testing.T) {
	t.Parallel()
	secrets := spread(t)
	if len(secrets) < 7 {
		t.Fatalf("only %d tokens were used", len(secrets))
	}
	for _, line := range logLines(t) {
		if bytes.Contains(line, []byte("Failed to label legacy service account token")) {
			t.Errorf("the Secret of a used token has no label: %s", line)
		}
		for name, token := range secrets {
			forms := []string{token, base64.StdEncoding.EncodeToString([]byte(token)), base64.RawURLEncoding.EncodeToString([]byte(token))}
			if parts := strings.Split(token, "."); len(parts) == 3 {
				forms = append(forms, parts[2]) // only the signature
			}
			for _, form := range forms {
				if bytes.Contains(line, []byte(form)) {
					t.Fatalf("token %s is in the line %s", name, line)
				}
			}
		}
	}
}
