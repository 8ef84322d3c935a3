package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/retention"
)

// revisionBump is added to the revision when a snapshot is restored. It is larger than the number of revisions that a cluster can have made
// since the snapshot, so that clients, and caches of API servers, never see a revision that they know with other content.
const revisionBump = 1_000_000_000

// answerTimeout is the timeout of requests to the member after the snapshot: it may have stopped since.
const answerTimeout = time.Minute

// Save takes a snapshot of the member that is the only endpoint of the client configuration, verifies it and stores it. Then it deletes the
// snapshots of the cluster that the policy does not keep.
func Save(ctx context.Context, config clientv3.Config, store Store, cluster string, keep retention.Policy,
	now func() time.Time) (*v1alpha1.EtcdSnapshotStatus, error) {
	began := now()
	directory, err := os.MkdirTemp("", "snapshot-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "snapshot.db")
	manager := etcdutl.NewV3(zap.NewNop())
	if _, err := manager.Save(ctx, config, file); err != nil {
		return nil, fmt.Errorf("taking a snapshot of %v: %w", config.Endpoints, err)
	}
	taken, err := verify(file)
	if err != nil {
		return nil, err
	}
	// before the snapshot is stored, so that each stored snapshot is reported
	if taken.ClusterID, taken.EtcdVersion, err = identify(ctx, config); err != nil {
		return nil, err
	}
	taken.Key = retention.Key(cluster, began, taken.Revision)
	if err := store.Put(ctx, taken.Key, file); err != nil {
		return nil, fmt.Errorf("storing %s: %w", taken.Key, err)
	}
	taken.Duration = &metav1.Duration{Duration: now().Sub(began).Round(time.Millisecond)}
	return taken, prune(ctx, store, cluster, keep)
}

// identify returns the cluster ID and the version of a member.
func identify(ctx context.Context, config clientv3.Config) (clusterID, version string, err error) {
	client, err := clientv3.New(config)
	if err != nil {
		return "", "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	status, err := client.Status(ctx, config.Endpoints[0])
	if err != nil {
		return "", "", fmt.Errorf("reading the status of %v: %w", config.Endpoints, err)
	}
	return strconv.FormatUint(status.Header.ClusterId, 16), status.Version, nil
}

// verify reads a complete snapshot, and compares its hash with the one that etcd has appended to it.
func verify(file string) (*v1alpha1.EtcdSnapshotStatus, error) {
	status, err := etcdutl.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot: %w", err)
	}
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return nil, err
	}
	data, whole := sha256.New(), sha256.New()
	if info.Size() <= sha256.Size {
		return nil, errors.New("snapshot is corrupt: it is empty")
	}
	if _, err := io.CopyN(io.MultiWriter(data, whole), content, info.Size()-sha256.Size); err != nil {
		return nil, err
	}
	trailer, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	if string(trailer) != string(data.Sum(nil)) {
		return nil, errors.New("snapshot is corrupt: checksum mismatch")
	}
	_, _ = whole.Write(trailer)
	return &v1alpha1.EtcdSnapshotStatus{Revision: status.Revision, Size: info.Size(), Hash: int64(status.Hash), Version: status.Version,
		SHA256: hex.EncodeToString(whole.Sum(nil))}, nil
}

// prune deletes the snapshots of a cluster that the policy does not keep. Keys without a time are not snapshots.
func prune(ctx context.Context, store Store, cluster string, keep retention.Policy) error {
	keys, err := store.List(ctx, cluster+"/")
	if err != nil {
		return fmt.Errorf("listing the snapshots of %s: %w", cluster, err)
	}
	var times []time.Time
	var snapshots []string
	for _, key := range keys {
		if at, ok := retention.TimeOf(key); ok && !strings.HasSuffix(key, retention.SecretsSuffix) {
			times, snapshots = append(times, at), append(snapshots, key)
		}
	}
	for i, kept := range keep.Keeps(times) {
		if kept {
			continue
		}
		for _, gone := range []string{snapshots[i], snapshots[i] + retention.SecretsSuffix} {
			if !slices.Contains(keys, gone) {
				continue
			}
			if err := store.Delete(ctx, gone); err != nil {
				return fmt.Errorf("deleting the expired %s: %w", gone, err)
			}
		}
	}
	return nil
}

// Member is the first member of a new cluster, for which a snapshot is restored.
type Member struct {
	Name, PeerURL, Token, DataDirectory string
}

// Restore restores a snapshot as the data of a member. It never overwrites existing data, and an interrupted restoration leaves no data
// directory.
func Restore(ctx context.Context, store Store, key string, member Member) error {
	if _, err := os.Stat(member.DataDirectory); err == nil {
		return fmt.Errorf("restoring a snapshot: %s exists, and data is never overwritten", member.DataDirectory)
	}
	parent := filepath.Dir(member.DataDirectory)
	directory, err := os.MkdirTemp(parent, "restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "snapshot.db")
	if err := store.Get(ctx, key, file); err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	if _, err := verify(file); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := restoreFile(file, directory, member); err != nil {
		return fmt.Errorf("restoring %s: %w", key, err)
	}
	return nil
}

// restoreFile restores a verified snapshot, first to a directory on the same volume.
func restoreFile(file, directory string, member Member) error {
	restored := filepath.Join(directory, "restored")
	err := etcdutl.NewV3(zap.NewNop()).Restore(etcdutl.RestoreConfig{
		SnapshotPath: file, Name: member.Name, OutputDataDir: restored, PeerURLs: []string{member.PeerURL},
		InitialCluster: member.Name + "=" + member.PeerURL, InitialClusterToken: member.Token,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return err
	}
	if err := os.Rename(restored, member.DataDirectory); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(member.DataDirectory))
}
