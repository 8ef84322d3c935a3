package observability

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestUsersOfBatteriesHaveOnlyIntendedPermissions(t *testing.T) {
	t.Parallel()
	equipped := kcptest.StartIn(t, t.TempDir(), "--batteries-included=+user,+metrics-viewer")
	root := equipped.Named("root")
	viewer := kcptest.User{Name: "viewer"}
	kcptest.Eventually(t, "the metrics viewer has a token", func(ctx context.Context) error {
		secret, err := root.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Get(ctx, "metrics", metav1.GetOptions{})
		if err != nil || len(secret.Data["token"]) == 0 {
			return fmt.Errorf("got %d keys, %w", len(secret.Data), err)
		}
		viewer.Token = string(secret.Data["token"])
		return nil
	})
	kcptest.Eventually(t, "the metrics viewer can read the metrics", func(context.Context) error {
		if code, body := root.Raw(t, viewer, http.MethodGet, "/metrics", nil, ""); code != http.StatusOK {
			return fmt.Errorf("got %d %.300s", code, body)
		}
		return nil
	})
	config, err := clientcmd.LoadFromFile(equipped.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if named := config.Contexts["user"]; named == nil || config.CurrentContext != "root" || !strings.HasSuffix(config.Clusters[named.Cluster].Server, "/clusters/root") {
		t.Fatalf("got contexts %v", config.Contexts)
	}
	plain := kcptest.User{Name: "user", Token: config.AuthInfos["user"].Token}
	for _, user := range []kcptest.User{viewer, plain} {
		_, err := root.Kube(t, user).CoreV1().Secrets("default").List(kcptest.Context(t), metav1.ListOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	}
	if code, _ := root.Raw(t, plain, http.MethodGet, "/metrics", nil, ""); code != http.StatusForbidden {
		t.Errorf("reading the metrics as the plain user: got %d", code)
	}
}

func TestUnknownBatteryIsRefused(t *testing.T) {
	t.Parallel()
	started, err := kcptest.Start(t.TempDir(), "--batteries-included=admin,lamp")
	if err == nil {
		started.Kill()
		t.Fatal("the server started")
	}
	if !strings.Contains(err.Error(), `unknown battery "lamp", must be one of admin, metrics-viewer, user`) {
		t.Errorf("got error %v", err)
	}
}
