// Package kubeconfig gives the administrators of a server their first credentials: tokens that the server knows, in a
// file that kubectl reads.
package kubeconfig

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// The administrators: names of users in the file and in the server.
const (
	// Admin administers workspaces: group system:kcp:admin. Its token is new at every start.
	Admin = "kcp-admin"
	// ShardAdmin may do everything: group system:masters. The server keeps only a hash of its token.
	ShardAdmin = "shard-admin"
	// AdminGroup is bound to cluster-admin in every logical cluster.
	AdminGroup = "system:kcp:admin"
)

// Tokens authenticates the administrators.
type Tokens struct {
	admin, shardAdmin         string
	adminHash, shardAdminHash [sha256.Size]byte
}

// Load returns the tokens for a server: a new one for Admin, and for ShardAdmin the one that kubeconfigFile holds, if
// its hash is the one in hashFile, or a new one if there is neither file yet.
func Load(kubeconfigFile, hashFile string) (*Tokens, error) {
	admin, err := newToken()
	if err != nil {
		return nil, err
	}
	t := &Tokens{admin: admin, adminHash: sha256.Sum256([]byte(admin))}
	stored, err := os.ReadFile(hashFile)
	if errors.Is(err, fs.ErrNotExist) {
		if t.shardAdmin, err = newToken(); err != nil {
			return nil, err
		}
		t.shardAdminHash = sha256.Sum256([]byte(t.shardAdmin))
		return t, writeSecret(hashFile, []byte(hex.EncodeToString(t.shardAdminHash[:])+"\n"))
	}
	if err != nil {
		return nil, fmt.Errorf("token of %s: %w", ShardAdmin, err)
	}
	known, err := hex.DecodeString(strings.TrimSpace(string(stored)))
	if err != nil || len(known) != sha256.Size {
		return nil, fmt.Errorf("%s does not hold a hash; remove it together with %s to get new credentials", hashFile, kubeconfigFile)
	}
	copy(t.shardAdminHash[:], known)
	config, err := clientcmd.LoadFromFile(kubeconfigFile)
	if err != nil {
		return nil, fmt.Errorf("reading the token of %s: %w; remove %s to get new credentials", ShardAdmin, err, hashFile)
	}
	if u := config.AuthInfos[ShardAdmin]; u != nil {
		t.shardAdmin = u.Token
	}
	if sha256.Sum256([]byte(t.shardAdmin)) != t.shardAdminHash {
		return nil, fmt.Errorf("the token of %s in %s is not the one that this server knows; remove %s to get new credentials", ShardAdmin, kubeconfigFile, hashFile)
	}
	return t, nil
}

func newToken() (string, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(random), nil
}

// AuthenticateToken implements authenticator.Token.
func (t *Tokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	hash := sha256.Sum256([]byte(token))
	isAdmin := subtle.ConstantTimeCompare(hash[:], t.adminHash[:])
	isShardAdmin := subtle.ConstantTimeCompare(hash[:], t.shardAdminHash[:])
	switch {
	case isAdmin == 1:
		return response(Admin, AdminGroup), true, nil
	case isShardAdmin == 1:
		return response(ShardAdmin, user.SystemPrivilegedGroup), true, nil
	}
	return nil, false, nil
}

func response(name, group string) *authenticator.Response {
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: []string{group, user.AllAuthenticated}}}
}

// Write writes the kubeconfig: contexts root (current), base, system:admin and shard-base of the server at url, whose
// certificate is verified with the PEM certificates in ca.
func (t *Tokens) Write(file, url string, ca []byte) error {
	config := clientcmdapi.NewConfig()
	config.AuthInfos[Admin] = &clientcmdapi.AuthInfo{Token: t.admin}
	config.AuthInfos[ShardAdmin] = &clientcmdapi.AuthInfo{Token: t.shardAdmin}
	for _, c := range []struct{ name, server, user string }{
		{"root", url + "/clusters/" + string(logicalcluster.Root), Admin},
		{"base", url, Admin},
		{"system:admin", url + "/clusters/" + string(logicalcluster.SystemAdmin), ShardAdmin},
		{"shard-base", url, ShardAdmin},
	} {
		config.Clusters[c.name] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: ca}
		config.Contexts[c.name] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: c.user}
	}
	config.CurrentContext = "root"
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return writeSecret(file, content)
}

// writeSecret replaces a file at once, readable by its owner only.
func writeSecret(file string, content []byte) error {
	next := file + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
