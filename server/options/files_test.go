package options

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/cli/flag"

	"github.com/spf13/pflag"
)

// flags returns all flags of a server.
func flags(o *Options) *pflag.FlagSet {
	all := pflag.NewFlagSet("kcp", pflag.ContinueOnError)
	var groups flag.NamedFlagSets
	o.AddFlags(&groups)
	for _, group := range groups.FlagSets {
		all.AddFlagSet(group)
	}
	return all
}

func TestEveryFlagThatNamesAFileNeedsAReadableFile(t *testing.T) {
	var names []string
	flags(New()).VisitAll(func(f *pflag.Flag) {
		if _, refused := replaced[f.Name]; namesFile(f.Name) && !refused { // whatever the file
			names = append(names, f.Name)
		}
	})
	for _, want := range []string{
		"root-ca-file", "service-account-private-key-file", "service-account-signing-key-file", "service-account-key-file", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
		"encryption-provider-config", "authentication-config", "audit-policy-file", "token-auth-file", "client-ca-file", "tls-cert-file",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("--%s is not checked", want)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for value, readable := range map[string]bool{filepath.Join(dir, "missing"): false, dir: false, file: true} {
			given := flags(New())
			if err := given.Parse([]string{"--" + name + "=" + value}); err != nil {
				t.Fatal(err)
			}
			if err := CheckFiles(given); (err == nil) != readable || (err != nil && !strings.HasPrefix(err.Error(), "--"+name+": ")) {
				t.Errorf("--%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestFlagsSetTheKeysOfServiceAccountTokens(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "sa.key")
	for _, c := range []struct {
		signing, secrets string
		keys             []string
		want             []string // the key that signs, the key for Secrets, the keys that verify
	}{
		{want: []string{made, made, made}},
		{secrets: "p", want: []string{"p", "p", "p"}},
		{signing: "s", want: []string{"s", "s", "s"}},
		{signing: "s", secrets: "p", want: []string{"s", "p", "s", "p"}},
		{signing: "s", secrets: "p", keys: []string{"k"}, want: []string{"s", "p", "k"}},
	} {
		o := New()
		o.Generic.ServiceAccountSigningKeyFile, o.SecretTokenKeyFile, o.Generic.Authentication.ServiceAccounts.KeyFiles = c.signing, c.secrets, c.keys
		if err := o.completeKeys(dir); err != nil {
			t.Fatal(err)
		}
		got := append([]string{o.Generic.ServiceAccountSigningKeyFile, o.SecretTokenKeyFile}, o.Generic.Authentication.ServiceAccounts.KeyFiles...)
		if !slices.Equal(got, c.want) {
			t.Errorf("signing %q, private %q, keys %q: got %q, want %q", c.signing, c.secrets, c.keys, got, c.want)
		}
	}
}

func TestTheDirectoryOfTheServingCertificateIsCreated(t *testing.T) {
	serving, directory := New().Generic.SecureServing.SecureServingOptions, filepath.Join(t.TempDir(), "certificates")
	serving.ServerCert.CertDirectory = directory
	if err := completeServingCertificate(serving, net.IPv4(127, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(directory, "apiserver.crt")); err != nil {
		t.Error(err)
	}
}

func TestTheRootCAFileMustContainCertificates(t *testing.T) {
	o := New()
	if o.RootCAFile = filepath.Join(t.TempDir(), "ca.crt"); os.WriteFile(o.RootCAFile, []byte("no certificate"), 0o600) != nil {
		t.Fatal("cannot write")
	}
	if _, err := o.readRootCA(); err == nil || !strings.HasPrefix(err.Error(), "--root-ca-file: ") {
		t.Errorf("got %v", err)
	}
}
