package lifecycle

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestFlagsOfExistingServersWork(t *testing.T) {
	dir := t.TempDir()
	ca, err := kcptest.NewAuthority(dir, "published")
	if err != nil {
		t.Fatal(err)
	}
	published, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	_, signing, err := ca.Issue(dir, "signing")
	if err != nil {
		t.Fatal(err)
	}
	_, secrets, err := ca.Issue(dir, "secrets")
	if err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(dir, "certificates")
	server := kcptest.StartIn(t, t.TempDir(), "--root-ca-file="+ca.File, "--service-account-private-key-file="+secrets,
		"--service-account-signing-key-file="+signing, "--cert-dir="+certificates,
		"--feature-gates=WorkspaceMounts=true,CacheAPIs=true,WorkspaceAuthentication=true,LogicalClusterMigration=true")
	if _, err := os.Stat(filepath.Join(certificates, "apiserver.crt")); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(server.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"WorkspaceMounts is always on", "CacheAPIs is always on", "WorkspaceAuthentication is always on", "LogicalClusterMigration has no effect"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log does not contain %q", want)
		}
	}

	cluster := server.Cluster(t)
	core := cluster.Kube(t, kcptest.Masters).CoreV1()
	ctx := kcptest.Context(t)
	for _, namespace := range []string{"default", "made"} { // the first one is a default object, a controller writes the second one
		if namespace == "made" {
			cluster.Kubectl(t, "create", "namespace", namespace)
		}
		kcptest.Eventually(t, "the CA certificates are published in "+namespace, func(ctx context.Context) error {
			found, err := core.ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && found.Data["ca.crt"] != string(published) {
				err = fmt.Errorf("got %q", found.Data["ca.crt"])
			}
			return err
		})
	}
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}}
	stored.Type = corev1.SecretTypeServiceAccountToken
	if _, err := core.Secrets("default").Create(ctx, stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var kept string
	kcptest.Eventually(t, "the secret has a token", func(ctx context.Context) error {
		filled, err := core.Secrets("default").Get(ctx, "robot", metav1.GetOptions{})
		if err != nil || len(filled.Data["token"]) == 0 {
			return fmt.Errorf("got %d keys, %w", len(filled.Data), err)
		}
		if string(filled.Data["ca.crt"]) != string(published) {
			t.Errorf("got CA certificates %q", filled.Data["ca.crt"])
		}
		kept = string(filled.Data["token"])
		return nil
	})
	requested, err := core.ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, token, key string }{{"the token of the secret", kept, secrets}, {"the requested token", requested.Status.Token, signing}} {
		if !signedBy(t, c.token, c.key) {
			t.Errorf("%s is not signed with the key of its flag", c.what)
		}
		_, err := cluster.Kube(t, kcptest.User{Name: c.what, Token: c.token}).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden) // authenticated, without permissions
	}
}

func TestErrorsNameFlagsWithUnreadableFiles(t *testing.T) {
	for _, flag := range []string{"--root-ca-file", "--service-account-private-key-file", "--token-auth-file"} {
		server, err := kcptest.Start(t.TempDir(), flag+"="+filepath.Join(t.TempDir(), "missing"))
		if err == nil {
			server.Kill()
			t.Fatalf("the server started without the file of %s", flag)
		}
		if !strings.Contains(err.Error(), flag+": open ") {
			t.Errorf("%s: got error %v", flag, err)
		}
	}
}

// signedBy reports whether a token is signed with the elliptic curve key in a file.
func signedBy(t *testing.T, token, keyFile string) bool {
	t.Helper()
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	if err != nil || len(signature) != 64 {
		t.Fatalf("a signature of %d bytes: %v", len(signature), err)
	}
	sum := sha256.Sum256([]byte(token[:at]))
	return ecdsa.Verify(&key.(*ecdsa.PrivateKey).PublicKey, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
}
