// Package kubeconfig creates the credentials of the first users of a server: tokens of the server in a kubeconfig
// file.
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

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Names of users in the file and in the server.
const (
	// Admin administers workspaces: group system:kcp:admin. Its token is new at every start.
	Admin = "kcp-admin"
	// ShardAdmin has all permissions: group system:masters. The server keeps only a hash of its token.
	ShardAdmin = "shard-admin"
	// Plain has only the permissions that it is granted. Its token is new at every start.
	Plain = "user"
)

// Users selects the users that a server creates.
type Users struct {
	// Admins are Admin and ShardAdmin.
	Admins bool
	// Plain selects the user Plain.
	Plain bool
}

// Tokens authenticates the users. A token is empty if its user was not created.
type Tokens struct {
	admin, shardAdmin, plain string
	known                    []account
	// remember writes the hash of a new token of ShardAdmin; nil if the token is not new.
	remember func() error
}

// account is a user by the hash of its token.
type account struct {
	hash        [sha256.Size]byte
	name, group string
}

// Load returns the tokens for a server: new ones for Admin and Plain, and for ShardAdmin the token in kubeconfigFile, if
// its hash is the one in hashFile, or a new one if neither file exists.
func Load(users Users, kubeconfigFile, hashFile string) (*Tokens, error) {
	t := &Tokens{}
	var err error
	if users.Plain {
		if t.plain, err = newToken(); err != nil {
			return nil, err
		}
		t.know(Plain, "", sha256.Sum256([]byte(t.plain)))
	}
	if !users.Admins {
		return t, nil
	}
	if t.admin, err = newToken(); err != nil {
		return nil, err
	}
	t.know(Admin, authorization.AdminGroup, sha256.Sum256([]byte(t.admin)))
	return t, t.loadShardAdmin(kubeconfigFile, hashFile)
}

func (t *Tokens) know(name, group string, hash [sha256.Size]byte) {
	t.known = append(t.known, account{hash, name, group})
}

func (t *Tokens) loadShardAdmin(kubeconfigFile, hashFile string) error {
	stored, err := os.ReadFile(hashFile)
	if errors.Is(err, fs.ErrNotExist) {
		if t.shardAdmin, err = newToken(); err != nil {
			return err
		}
		hash := sha256.Sum256([]byte(t.shardAdmin))
		t.know(ShardAdmin, user.SystemPrivilegedGroup, hash)
		t.remember = func() error { return writeSecret(hashFile, []byte(hex.EncodeToString(hash[:])+"\n")) }
		return nil
	}
	if err != nil {
		return fmt.Errorf("token of %s: %w", ShardAdmin, err)
	}
	hash, err := hex.DecodeString(strings.TrimSpace(string(stored)))
	if err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("%s does not contain a hash; remove it and %s to create new credentials", hashFile, kubeconfigFile)
	}
	config, err := clientcmd.LoadFromFile(kubeconfigFile)
	if err != nil {
		return fmt.Errorf("reading the token of %s: %w; remove %s to create new credentials", ShardAdmin, err, hashFile)
	}
	if u := config.AuthInfos[ShardAdmin]; u != nil {
		t.shardAdmin = u.Token
	}
	if sha256.Sum256([]byte(t.shardAdmin)) != [sha256.Size]byte(hash) {
		return fmt.Errorf("the token of %s in %s does not match the hash of this server; remove %s to create new credentials", ShardAdmin,
			kubeconfigFile, hashFile)
	}
	t.know(ShardAdmin, user.SystemPrivilegedGroup, [sha256.Size]byte(hash))
	return nil
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
	var found *account
	for i := range t.known {
		if subtle.ConstantTimeCompare(hash[:], t.known[i].hash[:]) == 1 {
			found = &t.known[i]
		}
	}
	if found == nil {
		return nil, false, nil
	}
	groups := []string{user.AllAuthenticated}
	if found.group != "" {
		groups = []string{found.group, user.AllAuthenticated}
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: found.name, Groups: groups}}, true, nil
}

// Write writes the kubeconfig of the users, if there are any, for the server at url, whose certificate is verified with the PEM
// certificates in ca: contexts root, base, system:admin and shard-base of the administrators, and user of Plain. The current one
// is the first of them. The hash of a new token is written after that, so that a server that fails earlier can be started again.
func (t *Tokens) Write(file, url string, ca []byte) error {
	config := clientcmdapi.NewConfig()
	for _, c := range []struct{ name, server, user, token string }{
		{"root", url + "/clusters/" + string(logicalcluster.Root), Admin, t.admin},
		{"base", url, Admin, t.admin},
		{"system:admin", url + "/clusters/" + string(logicalcluster.SystemAdmin), ShardAdmin, t.shardAdmin},
		{"shard-base", url, ShardAdmin, t.shardAdmin},
		{"user", url + "/clusters/" + string(logicalcluster.Root), Plain, t.plain},
	} {
		if c.token == "" {
			continue
		}
		config.AuthInfos[c.user] = &clientcmdapi.AuthInfo{Token: c.token}
		config.Clusters[c.name] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: ca}
		config.Contexts[c.name] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: c.user}
		if config.CurrentContext == "" {
			config.CurrentContext = c.name
		}
	}
	if config.CurrentContext == "" {
		return nil
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := writeSecret(file, content); err != nil || t.remember == nil {
		return err
	}
	return t.remember()
}

// writeSecret replaces a file atomically. Only its owner can read it.
func writeSecret(file string, content []byte) error {
	next := file + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
