package kubeconfig

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// started starts a server with some users and the files in dir. config is nil if there is no file.
func started(t *testing.T, dir string, users Users) (tokens *Tokens, config *clientcmdapi.Config, err error) {
	t.Helper()
	file := filepath.Join(dir, "admin.kubeconfig")
	if tokens, err = Load(users, file, filepath.Join(dir, "hash")); err != nil {
		return nil, nil, err
	}
	if err := tokens.Write(file, "https://example.com", []byte("PEM")); err != nil {
		t.Fatal(err)
	}
	if config, err = clientcmd.LoadFromFile(file); os.IsNotExist(err) {
		return tokens, nil, nil
	}
	return tokens, config, err
}

// identity returns the user of a token, as "name groups".
func identity(t *testing.T, tokens *Tokens, token string) string {
	t.Helper()
	response, ok, err := tokens.AuthenticateToken(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return response.User.GetName() + " " + strings.Join(response.User.GetGroups(), ",")
}

func TestEachUserHasItsContexts(t *testing.T) {
	for _, test := range []struct {
		users    Users
		contexts []string
		current  string
	}{
		{Users{Admins: true}, []string{"base", "root", "shard-base", "system:admin"}, "root"},
		{Users{Admins: true, Plain: true}, []string{"base", "root", "shard-base", "system:admin", "user"}, "root"},
		{Users{Plain: true}, []string{"user"}, "user"},
	} {
		dir := t.TempDir()
		tokens, config, err := started(t, dir, test.users)
		if err != nil {
			t.Fatal(err)
		}
		if names := slices.Sorted(maps.Keys(config.Contexts)); !slices.Equal(names, test.contexts) || config.CurrentContext != test.current {
			t.Errorf("%+v: the contexts are %v, the current one %q", test.users, names, config.CurrentContext)
		}
		for name, want := range map[string]string{
			Admin: "kcp-admin system:kcp:admin,system:authenticated", ShardAdmin: "shard-admin system:masters,system:authenticated", Plain: "user system:authenticated",
		} {
			u := config.AuthInfos[name]
			if u == nil {
				continue
			}
			if got := identity(t, tokens, u.Token); got != want {
				t.Errorf("the token of %s is that of %q, want %q", name, got, want)
			}
		}
		for _, forged := range []string{"", "x", strings.Repeat("A", 43)} {
			if got := identity(t, tokens, forged); got != "" {
				t.Errorf("the token %q is that of %q", forged, got)
			}
		}
	}
}

func TestWithoutUsersNothingIsWritten(t *testing.T) {
	dir := t.TempDir()
	tokens, config, err := started(t, dir, Users{})
	if err != nil || config != nil {
		t.Errorf("got %v, %v", config, err)
	}
	if left, err := fs.Glob(os.DirFS(dir), "*"); err != nil || len(left) > 0 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
	if got := identity(t, tokens, ""); got != "" {
		t.Errorf("without a token one is %q", got)
	}
}

func TestOnlyTheTokenOfTheShardAdministratorOutlivesTheServer(t *testing.T) {
	dir := t.TempDir()
	users := Users{Admins: true, Plain: true}
	_, before, err := started(t, dir, users)
	if err != nil {
		t.Fatal(err)
	}
	tokens, after, err := started(t, dir, users)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Admin, ShardAdmin, Plain} {
		same := before.AuthInfos[name].Token == after.AuthInfos[name].Token
		if same != (name == ShardAdmin) {
			t.Errorf("the token of %s is the same: %t", name, same)
		}
		if known := identity(t, tokens, before.AuthInfos[name].Token) != ""; known != (name == ShardAdmin) {
			t.Errorf("the old token of %s is accepted: %t", name, known)
		}
	}
	hash, err := os.ReadFile(filepath.Join(dir, "hash"))
	if err != nil || strings.Contains(string(hash), after.AuthInfos[ShardAdmin].Token) {
		t.Errorf("the file holds the token itself: %v", err)
	}
}

func TestInconsistentFilesAreErrorsWithTheNextStep(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"another token": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "hash"), []byte(strings.Repeat("0", 64)), 0o600)
		},
		"not a hash":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "hash"), []byte("nonsense"), 0o600) },
		"no kubeconfig": func(dir string) error { return os.Remove(filepath.Join(dir, "admin.kubeconfig")) },
		"broken kubeconfig": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), []byte("{"), 0o600)
		},
	} {
		dir := t.TempDir()
		if _, _, err := started(t, dir, Users{Admins: true}); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := started(t, dir, Users{Admins: true}); err == nil || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// For example, because its port is in use.
func TestAServerThatFailedBeforeWritingTheFileStartsAgain(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(Users{Admins: true}, filepath.Join(dir, "admin.kubeconfig"), filepath.Join(dir, "hash")); err != nil {
		t.Fatal(err)
	}
	tokens, config, err := started(t, dir, Users{Admins: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := identity(t, tokens, config.AuthInfos[ShardAdmin].Token); !strings.HasPrefix(got, ShardAdmin) {
		t.Errorf("the token of %s is that of %q", ShardAdmin, got)
	}
}
