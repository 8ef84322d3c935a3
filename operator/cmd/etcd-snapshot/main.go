// Command etcd-snapshot takes a snapshot of an etcd, restores one, or recovers a cluster from the data of one member, in a Job of the
// operator. Its result is the termination message of its container.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	_ "golang.org/x/crypto/x509roots/fallback" // images contain no public CA certificates, which S3 needs

	"github.com/kcplane/kcp/operator/internal/retention"
	"github.com/kcplane/kcp/operator/internal/snapshot"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		report(err.Error())
		os.Exit(1)
	}
}

// report writes the termination message of the container.
func report(text string) {
	if err := os.WriteFile("/dev/termination-log", []byte(text), 0o600); err != nil {
		fmt.Println(text)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "etcd-snapshot", SilenceUsage: true, Short: "Take and restore snapshots of an etcd"}
	root.AddCommand(save(), restore(), rescue(), secrets(), decrypt())
	return root
}

// storeFlags are the flags of a snapshot store.
type storeFlags struct {
	directory, endpoint, bucket, prefix, region, ca string
}

func (s *storeFlags) bind(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&s.directory, "directory", "", "Directory of the store, if it is a volume.")
	fs.StringVar(&s.endpoint, "s3-endpoint", "", "URL of the service, if the store is a bucket.")
	fs.StringVar(&s.bucket, "s3-bucket", "", "Name of the bucket.")
	fs.StringVar(&s.prefix, "s3-prefix", "", "Prefix of the names of objects in the bucket.")
	fs.StringVar(&s.region, "s3-region", "", "Region of the bucket.")
	fs.StringVar(&s.ca, "s3-ca-file", "", "File with the CA certificate of the service. Optional: the file may be missing.")
}

func (s *storeFlags) store() (snapshot.Store, error) {
	if s.directory != "" {
		return snapshot.Directory(s.directory), nil
	}
	ca, err := os.ReadFile(s.ca)
	if err != nil && s.ca != "" && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return snapshot.NewBucket(s.endpoint, s.bucket, s.prefix, s.region, ca)
}

func save() *cobra.Command {
	var s storeFlags
	var endpoint, cluster, secrets string
	var keep retention.Policy
	var tls transport.TLSInfo
	c := &cobra.Command{Use: "save", Short: "Take a snapshot of a member", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		store, err := s.store()
		if err != nil {
			return err
		}
		if secrets != "" {
			store = snapshot.WithSecrets(store, secrets)
		}
		config, err := tls.ClientConfig()
		if err != nil {
			return err
		}
		member := clientv3.Config{Endpoints: []string{endpoint}, TLS: config, DialTimeout: 20 * time.Second}
		taken, err := snapshot.Save(c.Context(), member, store, cluster, keep, time.Now)
		if err != nil {
			return err
		}
		text, err := json.Marshal(taken)
		if err != nil {
			return err
		}
		report(string(text))
		return nil
	}}
	s.bind(c)
	c.Flags().StringVar(&endpoint, "endpoint", "", "URL of the member.")
	c.Flags().StringVar(&cluster, "cluster", "", "Namespace and name of the cluster as namespace/name, the prefix of its keys.")
	c.Flags().IntVar(&keep.Last, "keep", 0, "Number of snapshots of the cluster to keep. Without any of the --keep flags, all are kept.")
	c.Flags().IntVar(&keep.Daily, "keep-daily", 0, "Number of days of which to keep the last snapshot, too.")
	c.Flags().IntVar(&keep.Weekly, "keep-weekly", 0, "Number of weeks of which to keep the last snapshot, too.")
	c.Flags().StringVar(&secrets, "secrets", "", "File with encrypted Secrets to store with the snapshot.")
	c.Flags().StringVar(&tls.CertFile, "cert-file", "", "File with the client certificate.")
	c.Flags().StringVar(&tls.KeyFile, "key-file", "", "File with the key of the client certificate.")
	c.Flags().StringVar(&tls.TrustedCAFile, "ca-file", "", "File with the CA certificate of the member.")
	return c
}

func restore() *cobra.Command {
	var s storeFlags
	var key string
	var member snapshot.Member
	c := &cobra.Command{Use: "restore", Short: "Restore a snapshot as the data of a member", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := s.store()
			if err != nil {
				return err
			}
			return snapshot.Restore(c.Context(), store, key, member)
		}}
	s.bind(c)
	c.Flags().StringVar(&key, "key", "", "Key of the snapshot in its store.")
	bindMember(c, &member)
	return c
}

func rescue() *cobra.Command {
	var etcd, survivor string
	var member snapshot.Member
	c := &cobra.Command{Use: "rescue",
		Short: "Copy the data of a survivor as the data of the first member of a new cluster", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return snapshot.Rescue(c.Context(), etcd, survivor, member)
		}}
	c.Flags().StringVar(&etcd, "etcd", "/etcd", "Program of the survivor's version of etcd.")
	c.Flags().StringVar(&survivor, "from", "", "Directory of the survivor's data, which is not changed.")
	bindMember(c, &member)
	return c
}

// bindMember adds the flags of the new member.
func bindMember(c *cobra.Command, member *snapshot.Member) {
	c.Flags().StringVar(&member.Name, "name", "", "Name of the member.")
	c.Flags().StringVar(&member.PeerURL, "peer-url", "", "Peer URL of the member.")
	c.Flags().StringVar(&member.Token, "token", "", "Token of the new cluster.")
	c.Flags().StringVar(&member.DataDirectory, "data-dir", "", "Directory for the data of the member.")
}
