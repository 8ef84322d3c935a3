package options

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	certutil "k8s.io/client-go/util/cert"
)

// CheckFiles returns an error that names the flag if a flag of a command line names an unreadable file.
func CheckFiles(flags *pflag.FlagSet) error {
	var failed error
	flags.Visit(func(f *pflag.Flag) {
		if failed != nil || !namesFile(f.Name) {
			return
		}
		names := []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			names = many.GetSlice()
		}
		for _, name := range names {
			if name != "" {
				failed = readable(f.Name, name)
			}
			if failed != nil {
				return
			}
		}
	})
	return failed
}

// namesFile reports whether a flag names files that the server reads. The names of all such flags have these endings.
func namesFile(flag string) bool {
	return strings.HasSuffix(flag, "file") || strings.HasSuffix(flag, "-config")
}

func readable(flag, name string) error {
	opened, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	defer opened.Close()
	if info, err := opened.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("--%s: %s is a directory", flag, name)
	}
	return nil
}

// readRootCA returns the certificates of --root-ca-file, in PEM, or nil without the flag.
func (o *Options) readRootCA() ([]byte, error) {
	if o.RootCAFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(o.RootCAFile)
	if err == nil {
		_, err = certutil.ParseCertsPEM(content)
	}
	if err != nil {
		return nil, fmt.Errorf("--root-ca-file: %s: %w", o.RootCAFile, err)
	}
	return content, nil
}

// completeKeys sets the keys that sign and verify service account tokens. Unless a flag names a key, it creates one in the directory.
func (o *Options) completeKeys(directory string) error {
	g := o.Generic
	if g.ServiceAccountSigningKeyFile == "" {
		g.ServiceAccountSigningKeyFile = o.SecretTokenKeyFile
	}
	if g.ServiceAccountSigningKeyFile == "" {
		g.ServiceAccountSigningKeyFile = filepath.Join(directory, "sa.key")
		if err := ensureSigningKey(g.ServiceAccountSigningKeyFile); err != nil {
			return fmt.Errorf("creating the key of service account tokens: %w", err)
		}
	}
	if o.SecretTokenKeyFile == "" {
		o.SecretTokenKeyFile = g.ServiceAccountSigningKeyFile
	}
	if keys := &g.Authentication.ServiceAccounts.KeyFiles; len(*keys) == 0 {
		*keys = []string{g.ServiceAccountSigningKeyFile}
		if o.SecretTokenKeyFile != g.ServiceAccountSigningKeyFile {
			*keys = append(*keys, o.SecretTokenKeyFile)
		}
	}
	return nil
}
