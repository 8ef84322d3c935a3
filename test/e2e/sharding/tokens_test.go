package sharding

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestATokenOfAServiceAccountIsUsedThroughAProxy(t *testing.T) {
	t.Parallel()
	fresh(t)
	name, direct := workspaceOn(t, shard(t, "shard-1"))
	direct.Kubectl(t, "create", "clusterrolebinding", "robots", "--clusterrole=view", "--serviceaccount=default:default")
	accounts := direct.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default")
	token, err := accounts.CreateToken(kcptest.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := kcptest.User{Name: "system:serviceaccount:default:default", Token: token.Status.Token}
	objects := through(0, "root:"+name).Kube(t, robot).CoreV1()
	if _, err := objects.ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{}); err != nil {
		t.Errorf("reading in the own workspace: %v", err)
	}
	_, err = objects.Secrets("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	other, _ := workspaceOn(t, shard(t, "shard-2"))
	_, err = through(0, "root:"+other).Kube(t, robot).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("reading in a workspace on another shard: got %v, want a refusal", err)
	}
}

// The workspace of the account has neither exports nor types, so its shard offers nothing of it to others.
func TestAServiceAccountOfAWorkspaceThatSharesNothingIsKnownOnOtherShards(t *testing.T) {
	t.Parallel()
	_, of := workspaceOn(t, shard(t, "shard-1"))
	accounts := of.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default")
	token, err := accounts.CreateToken(kcptest.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := "system:serviceaccount:default:default"
	robot := kcptest.User{Name: name, Token: token.Status.Token}
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			path, there := workspaceOn(t, s)
			there.Kubectl(t, "create", "clusterrolebinding", "robots", "--clusterrole=view", "--user=system:kcp:serviceaccount:"+of.Name+":default:default")
			there.Kubectl(t, "create", "clusterrolebinding", "access", "--clusterrole=system:kcp:workspace:access",
				"--user=system:kcp:serviceaccount:"+of.Name+":default:default")
			for what, at := range map[string]*kcptest.Cluster{"at the shard": there, "through a proxy": through(0, "root:"+path)} {
				kcptest.Eventually(t, "the account reads "+what, func(ctx context.Context) error {
					_, err := at.Kube(t, robot).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
					return err
				})
			}
			_, err := there.Kube(t, robot).CoreV1().Secrets("default").List(kcptest.Context(t), metav1.ListOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		})
	}
}
