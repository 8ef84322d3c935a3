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

// Rescue creates the data of the first member of a new cluster from the data of a survivor of another cluster. The survivor must not run.
// Its data is only read: a copy is started as a cluster with one member, by a program with the arguments of etcd-member and the version of
// the survivor. So the result includes entries in the survivor's log that were not known to be committed. If the data directory exists, an
// earlier call has completed, and Rescue changes nothing.
func Rescue(ctx context.Context, etcd, survivor string, member Member) error {
	if _, err := os.Stat(member.DataDirectory); err == nil {
		return nil
	}
	scratch, err := os.MkdirTemp("", "rescue-") // has space for two copies, and a short path for sockets
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

// saveAlone starts a member as a cluster with one member, and takes a snapshot of it.
func saveAlone(ctx context.Context, etcd, data, scratch, file string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := "unix://" + filepath.Join(scratch, "client")
	command := exec.CommandContext(ctx, etcd, "--data-dir="+data, "--", "--force-new-cluster", "--enable-grpc-gateway=false",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls=unix://"+filepath.Join(scratch, "peer"),
		"--quota-backend-bytes=1099511627776", // must not raise an alarm because of a smaller quota than the survivor had
		"--log-level=error", "--logger=zap")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := command.Wait()
		cancel(fmt.Errorf("starting a copy of the survivor's data: %w: %s", cmp.Or(err, errors.New("the process exited")), tail(output.Bytes())))
	}()
	err := saveWhenReady(ctx, clientv3.Config{Endpoints: []string{client}, DialTimeout: time.Minute}, file)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	<-ended
	return err
}

// saveWhenReady takes the snapshot when the member is the leader and has applied its log.
func saveWhenReady(ctx context.Context, config clientv3.Config, file string) error {
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		timed, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := client.Get(timed, "/", clientv3.WithCountOnly())
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

// tail returns the end of a text, which fits into a termination message.
func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }
