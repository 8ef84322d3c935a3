package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Rescue makes the data of a member, which begins a cluster, from those of a survivor of another one. The survivor must not run, and its
// data are read only: a copy of them is started as a cluster of one, by a program that takes the arguments of etcd-member and is of
// the version of the survivor. So nothing is missed that the survivor has written into its log, but was never told that a majority has.
// What was rescued to the end before is left as it is.
func Rescue(ctx context.Context, etcd, survivor string, member Member) error {
	if _, err := os.Stat(member.DataDirectory); err == nil {
		return nil
	}
	scratch, err := os.MkdirTemp("", "rescue-") // room for two copies, and for sockets, whose paths are short
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	alone, file := filepath.Join(scratch, "data"), filepath.Join(scratch, "snapshot.db")
	if err := os.CopyFS(alone, os.DirFS(survivor)); err != nil {
		return fmt.Errorf("copying %s: %w", survivor, err)
	}
	if err := saveAlone(ctx, etcd, alone, scratch, file); err != nil {
		return err
	}
	if _, err := verify(file); err != nil {
		return err
	}
	directory, err := os.MkdirTemp(filepath.Dir(member.DataDirectory), "rescue-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if err := restoreFile(file, directory, member); err != nil {
		return fmt.Errorf("recovering the cluster from %s: %w", survivor, err)
	}
	return nil
}

// saveAlone starts a member as a cluster of one, and takes a snapshot of it.
func saveAlone(ctx context.Context, etcd, data, scratch, file string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := "unix://" + filepath.Join(scratch, "client")
	command := exec.CommandContext(ctx, etcd, "--data-dir="+data, "--", "--force-new-cluster", "--enable-grpc-gateway=false",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls=unix://"+filepath.Join(scratch, "peer"),
		"--quota-backend-bytes=1099511627776", // no alarm because of a quota that it had not
		"--log-level=error", "--logger=zap")
	var told bytes.Buffer
	command.Stdout, command.Stderr = &told, &told
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := command.Wait()
		cancel(fmt.Errorf("a copy of the survivor's data does not start: %w: %s", cmp.Or(err, errors.New("it ended")), tail(told.Bytes())))
	}()
	err := saveWhenReady(ctx, clientv3.Config{Endpoints: []string{client}, DialTimeout: time.Minute}, file)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	<-ended
	return err
}

// saveWhenReady takes the snapshot once the member leads and has done all that its log says.
func saveWhenReady(ctx context.Context, config clientv3.Config, file string) error {
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := client.Get(asked, "/", clientv3.WithCountOnly())
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second / 4):
		}
	}
	_, err = etcdutl.NewV3(zap.NewNop()).Save(ctx, config, file)
	return err
}

// tail returns as much as a termination message has room for.
func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }
