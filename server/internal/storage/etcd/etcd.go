// Package etcd runs an etcd server inside the process, for installations without a separate etcd.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// Config of an embedded etcd.
type Config struct {
	// Directory contains the data; it is created if necessary, readable only by its owner.
	Directory string
	// ClientPort and PeerPort are TCP ports on the loopback address, without encryption. Zero, the default, means none:
	// the server then listens on Unix sockets that only its own user can open.
	ClientPort, PeerPort int
	// WALSizeBytes is the size that a segment of the write-ahead log is preallocated to; zero is etcd's default.
	WALSizeBytes int64
	// QuotaBackendBytes is the maximum size of the database for writes that make it larger; zero is 64 GiB.
	QuotaBackendBytes int64

	// free returns the free bytes on the disk of a directory; nil uses the system call.
	free func(directory string) (int64, error)
}

const (
	defaultQuota    = int64(64 << 30)
	maxRequestBytes = 16 << 20
	startTimeout    = time.Minute
	// stopTimeout limits the shutdown of a server, stopUnreadyTimeout that of a server that has never been ready.
	stopTimeout, stopUnreadyTimeout = 30 * time.Second, 3 * time.Second
	// unwatchTimeout limits how long a shutdown waits for watches to end.
	unwatchTimeout = 5 * time.Second
	// A watch without an event for this long receives the current revision. Bookmarks of idle watches are based on
	// it.
	progressInterval = 5 * time.Second
	// DiskThreads is how many threads of a busy server wait for the disk: one writes the log, the other the database.
	DiskThreads = 2
)

// ErrInUse means that another process uses the data directory.
var ErrInUse = errors.New("another server uses this directory")

// Server is a running embedded etcd.
type Server struct {
	etcd    *embed.Etcd
	watches *watchHandlers // of Client
	lock    *os.File
	sockets string
	serving bool
	space   *space
}

// Start runs etcd on a directory and returns when it is ready. It fails with ErrInUse if another process uses the
// directory.
func Start(ctx context.Context, config Config) (*Server, error) {
	if err := os.MkdirAll(config.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("data directory of etcd: %w", err)
	}
	lock, err := lockDirectory(config.Directory)
	if err != nil {
		return nil, err
	}
	s := &Server{lock: lock, watches: newWatchHandlers()}
	if err := s.start(ctx, config); err != nil {
		s.Stop()
		return nil, fmt.Errorf("embedded etcd in %s: %w", config.Directory, err)
	}
	return s, nil
}

func lockDirectory(directory string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory of etcd: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w; stop it, or choose another --root-directory", directory, ErrInUse)
	}
	return nil, fmt.Errorf("locking the data directory of etcd: %w", err)
}

func (s *Server) start(ctx context.Context, config Config) error {
	var err error
	if s.sockets, err = os.MkdirTemp("", "kcp-etcd-"); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(config.Directory, "data")
	cfg.LogLevel = "panic" // its errors are returned as errors of requests, or end it
	client, peer := listenURL(s.sockets, "client", config.ClientPort), listenURL(s.sockets, "peer", config.PeerPort)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.MaxRequestBytes = maxRequestBytes
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.MaxWalFiles = logFiles
	cfg.WatchProgressNotifyInterval = progressInterval
	quota := cmp.Or(config.QuotaBackendBytes, defaultQuota)
	cfg.QuotaBackendBytes = quota + reserve(quota)
	if config.WALSizeBytes > 0 {
		wal.SegmentSizeBytes = config.WALSizeBytes
	}
	room := &space{directory: config.Directory, quota: quota, segment: wal.SegmentSizeBytes, free: config.free}
	if room.free == nil {
		room.free = freeOn
	}
	if err := room.measure(); err != nil {
		return err
	}
	if err := room.Write(); err != nil {
		return fmt.Errorf("%w: free disk space and start again", err)
	}
	applied, err := checkDatabase(cfg.Dir)
	if err != nil {
		return err
	}
	if s.etcd, err = launch(cfg, applied); err != nil {
		return err
	}
	if err := s.ready(ctx, cfg.Dir, applied); err != nil {
		return err
	}
	room.server, s.space = s.etcd.Server, room
	return room.start(ctx)
}

// ready waits until the server is ready, or returns an error.
func (s *Server) ready(ctx context.Context, data string, applied uint64) error {
	suspicious, late := time.After(logPatience), time.After(startTimeout)
	for {
		select {
		case <-s.etcd.Server.ReadyNotify():
			s.serving = true
			return nil
		case err := <-s.etcd.Err():
			return err
		case <-suspicious:
			if err := checkLog(data, applied); err != nil {
				return err
			}
		case <-late:
			return fmt.Errorf("etcd is not ready after %s", startTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func listenURL(sockets, name string, port int) url.URL {
	if port == 0 {
		return url.URL{Scheme: "unix", Path: filepath.Join(sockets, name)}
	}
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
}

// Client returns a client that calls the server without a connection.
func (s *Server) Client() *clientv3.Client {
	client := v3client.New(s.etcd.Server)
	client.KV = clientv3.NewKVFromKVClient(&compactor{
		KVClient: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(s.etcd.Server)), compact: s.etcd.Server.ForceSnapshot,
	}, client)
	watches := adapter.WatchServerToWatchClient(awaitedWatches{v3rpc.NewWatchServer(s.etcd.Server), s.watches})
	client.Watcher = clientv3.NewWatchFromWatchClient(localWatches{watches, s.watches.stopped}, client)
	return client
}

// Grow returns an error if writes that need more space than the value that they replace are rejected.
func (s *Server) Grow() error { return s.space.Grow() }

// Write returns an error if all writes are rejected.
func (s *Server) Write() error { return s.space.Write() }

// Err delivers the error that ends the server.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Stop ends the server and releases the directory. It stops waiting after a timeout for a server that cannot end, because the server
// was never ready or its disk hangs: the process is about to end.
func (s *Server) Stop() {
	timeout := stopTimeout
	if !s.serving {
		timeout = stopUnreadyTimeout
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if s.space != nil {
			s.space.stop()
		}
		s.watches.stop(unwatchTimeout)
		if s.etcd != nil {
			s.etcd.Close()
		}
	}()
	select {
	case <-stopped:
	case <-time.After(timeout):
	}
	if s.sockets != "" {
		_ = os.RemoveAll(s.sockets)
	}
	_ = s.lock.Close()
}
