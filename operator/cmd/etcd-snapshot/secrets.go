package main

import (
	"cmp"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/operator/internal/encryption"
	"github.com/kcplane/kcp/operator/internal/snapshot"
)

func secrets() *cobra.Command {
	var s storeFlags
	var key string
	c := &cobra.Command{Use: "secrets", Short: "Print the encrypted Secrets that belong to a snapshot", Args: cobra.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		store, err := s.store()
		if err != nil {
			return err
		}
		content, err := snapshot.Secrets(c.Context(), store, key)
		return cmp.Or(err, write(c, content))
	}
	s.bind(c)
	c.Flags().StringVar(&key, "key", "", "Key of the snapshot in its store.")
	return c
}

func decrypt() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "decrypt", Short: "Decrypt the Secrets of a snapshot from standard input", Args: cobra.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		key, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		encrypted, err := io.ReadAll(c.InOrStdin())
		if err != nil {
			return err
		}
		content, err := encryption.Decrypt(key, encrypted)
		return cmp.Or(err, write(c, content))
	}
	c.Flags().StringVar(&file, "encryption-key-file", "", "File with the encryption key.")
	return c
}

func write(c *cobra.Command, content []byte) error {
	_, err := c.OutOrStdout().Write(content)
	return err
}
