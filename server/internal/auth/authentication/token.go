package authentication

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kcplane/kcp/server/internal/request/path"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// protocolPrefix is the prefix of the websocket protocol in which browsers send a token, because they cannot set
// headers.
const protocolPrefix = "base64url.bearer.authorization.k8s.io."

// bearerTokens returns the tokens of r from all places that upstream's authenticators read.
func bearerTokens(r *http.Request) []string {
	var tokens []string
	parts := strings.SplitN(strings.TrimSpace(r.Header.Get("Authorization")), " ", 3)
	if len(parts) > 1 && strings.EqualFold(parts[0], "bearer") && parts[1] != "" {
		tokens = append(tokens, parts[1])
	}
	if !wsstream.IsWebSocketRequest(r) {
		return tokens
	}
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for _, protocol := range strings.Split(header, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), protocolPrefix)
			if !ok {
				continue
			}
			if token, err := base64.RawURLEncoding.DecodeString(encoded); err == nil && len(token) > 0 {
				tokens = append(tokens, string(token))
			}
		}
	}
	return tokens
}

// Claimed returns the logical cluster that the service account tokens of a request claim, and whether the request has any token. The
// signatures are not checked.
func Claimed(r *http.Request) (cluster logicalcluster.Name, tokens bool, err error) {
	borne := bearerTokens(r)
	cluster, err = commonCluster(borne)
	return cluster, len(borne) > 0, err
}

// commonCluster returns the logical cluster that all tokens claim, or an empty name if they claim none.
func commonCluster(tokens []string) (logicalcluster.Name, error) {
	var common logicalcluster.Name
	for i, token := range tokens {
		claimed := ClaimedCluster(token)
		if i > 0 && claimed != common {
			return "", errTwoClusters
		}
		common = claimed
	}
	return common, nil
}

// WithInClusterServiceAccount routes requests without a logical cluster, but with a service account token, to the
// cluster of that token, so that in-cluster client configurations work.
func WithInClusterServiceAccount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/clusters/") || strings.HasPrefix(r.URL.Path, "/services/") || path.IsServerPath(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		cluster, err := commonCluster(bearerTokens(r))
		if err != nil || cluster == "" { // authentication returns the error
			next.ServeHTTP(w, r)
			return
		}
		u := url.URL(*r.URL)
		prefix := "/clusters/" + string(cluster)
		if u.RawPath != "" {
			u.RawPath = prefix + u.RawPath
		}
		u.Path = prefix + u.Path
		scoped := r.WithContext(r.Context())
		scoped.URL = &u
		scoped.RequestURI = u.RequestURI()
		next.ServeHTTP(w, scoped)
	})
}
