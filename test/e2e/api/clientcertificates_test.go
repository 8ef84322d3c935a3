package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// requested creates and approves a request for a client certificate.
func requested(t *testing.T, cluster *kcptest.Cluster, name string, key any, subject pkix.Name) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	csrs, ctx := cluster.Kube(t, kcptest.Masters).CertificatesV1().CertificateSigningRequests(), kcptest.Context(t)
	csr, err := csrs.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "approved by the test",
	})
	if _, err := csrs.UpdateApproval(ctx, name, csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the request "+name+" has a result", func(ctx context.Context) (err error) {
		csr, err = csrs.Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 && len(csr.Status.Conditions) < 2 {
			err = fmt.Errorf("got status %v", csr.Status)
		}
		return err
	})
	return csr
}

// certified returns the configuration of a client with a certificate that a cluster signed.
func certified(t *testing.T, cluster *kcptest.Cluster, user string, groups ...string) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	csr := requested(t, cluster, "client-"+user, key, pkix.Name{CommonName: user, Organization: groups})
	config := cluster.Config(kcptest.Anonymous)
	config.CertData, config.KeyData = csr.Status.Certificate, encoded
	return config
}

// at returns a client of another cluster with the same certificate.
func at(t *testing.T, config *rest.Config, cluster *kcptest.Cluster) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host = cluster.URL()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func TestClientCertificateIsValidOnlyInItsCluster(t *testing.T) {
	cluster, other := server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	config := certified(t, cluster, kcptest.Alice.Name, "team-a")
	for _, c := range []*kcptest.Cluster{cluster, other} {
		c.Grant(t, kcptest.Alice, "cluster-admin")
	}
	inside := at(t, config, cluster)
	who, err := inside.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info := who.Status.UserInfo
	if info.Username != kcptest.Alice.Name || !slices.Contains(info.Groups, "team-a") || !slices.Equal(info.Extra["authentication.kcp.io/scopes"], []string{"cluster:" + cluster.Name}) {
		t.Errorf("the certificate has the identity %v", info)
	}
	if _, err := inside.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	for name, elsewhere := range map[string]*kcptest.Cluster{"another cluster with the same rights": other, "root": server.Named("root"), "system:admin": server.Named("system:admin"), "all clusters": server.Named("*")} {
		if _, err := at(t, config, elsewhere).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	body, err := at(t, config, server.Named("root")).CoreV1().RESTClient().Get().AbsPath("/apis/tenancy.kcp.io/v1alpha1/workspaces/~").DoRaw(ctx)
	if !apierrors.IsForbidden(err) {
		t.Errorf("the home of the user with this name: %s, %v", body, err)
	}
	// The groups that can enter a cluster are decided outside of it.
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"team-a"}}}`, corev1alpha1.RequiredGroupsAnnotation)
	if _, err := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Patch(ctx, corev1alpha1.LogicalClusterName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the group of a certificate does not satisfy the required groups of a cluster", func(ctx context.Context) error {
		if _, err := inside.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func TestClientCertificatesAreRefusedAfterClusterIsDeleted(t *testing.T) {
	cluster := server.Cluster(t)
	ctx := kcptest.Context(t)
	config := certified(t, cluster, "carol")
	if _, err := at(t, config, cluster).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "carol"`) {
		t.Fatalf("before: %v", err)
	}
	if err := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Delete(ctx, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	root := at(t, config, server.Named("root"))
	kcptest.Eventually(t, "the certificate is refused", func(ctx context.Context) error {
		if _, err := root.Discovery().RESTClient().Get().AbsPath("/api").DoRaw(ctx); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func TestCertificatesForSystemIdentitiesAreNotSigned(t *testing.T) {
	cluster := server.Cluster(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]pkix.Name{
		"user": {CommonName: "system:admin"}, "group": {CommonName: "alice", Organization: []string{"system:kcp:admin"}},
		"account": {CommonName: "system:serviceaccount:default:default"},
	} {
		csr := requested(t, cluster, name, key, subject)
		i := slices.IndexFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateFailed
		})
		if len(csr.Status.Certificate) > 0 || i < 0 || !strings.Contains(csr.Status.Conditions[i].Message, "is reserved: certificates are not signed for") {
			t.Errorf("%s: %v", name, csr.Status)
		}
	}
}
