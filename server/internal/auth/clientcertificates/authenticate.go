package clientcertificates

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var _ authenticator.Request = &Authority{}

// AuthenticateRequest implements authenticator.Request. It authenticates certificates of the authority as users of the logical cluster
// in the certificate, as long as that cluster exists. It has no opinion on other certificates.
func (a *Authority) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	presented := Presented(r)
	if presented == nil {
		return nil, false, nil
	}
	_, err := presented.Verify(x509.VerifyOptions{
		Roots: a.current.Load().roots, CurrentTime: a.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, false, fmt.Errorf("verifying the client certificate of a logical cluster: %w", err)
	}
	cluster, uid, ok := clusterOf(presented)
	if !ok {
		return nil, false, errors.New("the client certificate has no logical cluster")
	}
	if err := checkIdentity(presented.Subject.CommonName, presented.Subject.Organization); err != nil {
		return nil, false, err
	}
	lc, err := a.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.UID != uid {
		return nil, false, fmt.Errorf("the client certificate is for logical cluster %s, which no longer exists", cluster)
	}
	return &authenticator.Response{User: identity(presented, cluster)}, true, nil
}

// identity returns the user of a certificate, scoped like a user of the issuer of a workspace.
func identity(certificate *x509.Certificate, cluster logicalcluster.Name) user.Info {
	sum := sha256.Sum256(certificate.Raw)
	return authorization.InClusterOnly(&user.DefaultInfo{
		Name:   certificate.Subject.CommonName,
		Groups: append(slices.Clone(certificate.Subject.Organization), user.AllAuthenticated),
		Extra: map[string][]string{
			logicalcluster.UserExtraKey: {string(cluster)},
			user.CredentialIDKey:        {authorization.CertificateIDPrefix + hex.EncodeToString(sum[:])},
		},
	}, cluster)
}
