package authentication

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	kubernetesClaim  = "kubernetes.io"
	clusterNameClaim = "clusterName"
	// The claim in tokens in Secrets, whose private claims are flat.
	legacyClusterClaim = "kubernetes.io/serviceaccount/clusterName"
	legacySubjectClaim = "kubernetes.io/serviceaccount/namespace"
	// maxTokenLength limits the bytes that are parsed before the signature is checked.
	maxTokenLength = 16 << 10
)

// Generator signs service account tokens that carry the logical cluster of the context.
type Generator struct{ serviceaccount.TokenGenerator }

// GenerateToken implements serviceaccount.TokenGenerator.
func (g Generator) GenerateToken(ctx context.Context, claims *jwt.Claims, privateClaims any) (string, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(privateClaims)
	if err != nil {
		return "", fmt.Errorf("claims of service account token: %w", err)
	}
	var private map[string]any
	if err := json.Unmarshal(encoded, &private); err != nil {
		return "", fmt.Errorf("claims of service account token: %w", err)
	}
	if private == nil {
		private = map[string]any{}
	}
	if _, legacy := private[legacySubjectClaim]; legacy {
		private[legacyClusterClaim] = string(cluster)
		return g.TokenGenerator.GenerateToken(ctx, claims, private)
	}
	nested, _ := private[kubernetesClaim].(map[string]any)
	if nested == nil {
		nested = map[string]any{}
	}
	nested[clusterNameClaim] = string(cluster)
	private[kubernetesClaim] = nested
	return g.TokenGenerator.GenerateToken(ctx, claims, private)
}

// ClaimedCluster returns the logical cluster that a token claims, or an empty name if it claims none. The signature is
// not checked: use the result only to look up the account.
func ClaimedCluster(token string) logicalcluster.Name {
	if len(token) > maxTokenLength {
		return ""
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			ClusterName string `json:"clusterName"`
		} `json:"kubernetes.io"`
		Legacy string `json:"kubernetes.io/serviceaccount/clusterName"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	name := claims.Kubernetes.ClusterName
	if name == "" {
		name = claims.Legacy
	}
	if !logicalcluster.ValidPath(name) {
		return ""
	}
	return logicalcluster.Name(name)
}
