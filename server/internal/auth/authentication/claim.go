package authentication

import (
	"cmp"
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
	// The claim with the shard that signed the token, which may hold the cluster.
	shardClaim = "shard"
	// The claim in tokens in Secrets, whose private claims are flat.
	legacyClusterClaim = "kubernetes.io/serviceaccount/clusterName"
	legacySubjectClaim = "kubernetes.io/serviceaccount/namespace"
	// maxTokenLength limits the bytes that are parsed before the signature is checked.
	maxTokenLength = 16 << 10
)

// Generator signs service account tokens that carry the logical cluster of the context, and this shard if it is one of several.
type Generator struct {
	serviceaccount.TokenGenerator
	Shard string
}

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
	if g.Shard != "" {
		nested[shardClaim] = g.Shard
	}
	private[kubernetesClaim] = nested
	return g.TokenGenerator.GenerateToken(ctx, claims, private)
}

// ClaimedCluster returns the logical cluster that a token claims, or an empty name if it claims none. The signature is
// not checked: use the result only to look up the account.
func ClaimedCluster(token string) logicalcluster.Name {
	cluster, _ := claimedPlace(token)
	return cluster
}

// claimedPlace returns the logical cluster that a token claims, and the shard that it names, if any. Both are empty if it claims no
// cluster.
func claimedPlace(token string) (cluster logicalcluster.Name, shard string) {
	if len(token) > maxTokenLength || strings.Count(token, ".") != 2 {
		return "", ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return "", ""
	}
	var claims struct {
		Kubernetes struct {
			ClusterName string `json:"clusterName"`
			Shard       string `json:"shard"`
		} `json:"kubernetes.io"`
		Legacy string `json:"kubernetes.io/serviceaccount/clusterName"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return "", ""
	}
	name := cmp.Or(claims.Kubernetes.ClusterName, claims.Legacy)
	if !logicalcluster.ValidPath(name) {
		return "", ""
	}
	return logicalcluster.Name(name), claims.Kubernetes.Shard
}
