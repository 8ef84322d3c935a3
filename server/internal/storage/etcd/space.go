package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"golang.org/x/sys/unix"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// spaceInterval is how often the sizes of the database and of the disk are checked.
	spaceInterval = time.Second
	// reserveShare is the part of the quota that etcd has in addition, for deletions and their writes.
	reserveShare = 8
	minReserve   = 16 << 20
	// History is dropped when less than a tenth of the quota is left, or less than minLeft, the amount that may be written between
	// two checks.
	leftShare = 10
	minLeft   = 32 << 20
	// compactInterval and defragmentInterval limit how often both happen when space is low. A compaction reads the whole database:
	// compactShare is the maximum share of time for it.
	compactInterval, defragmentInterval = 2 * time.Second, 10 * time.Second
	compactShare                        = 10
	// diskSegments is the number of segments of the write-ahead log that must fit on the disk for writes that grow; half of them are
	// required for any write.
	diskSegments = 4
)

// space tracks the free space of an etcd, and frees space.
type space struct {
	server    *etcdserver.EtcdServer
	directory string
	quota     int64
	segment   int64
	free      func(directory string) (int64, error)

	disk        atomic.Int64 // free bytes
	compacted   int64        // the revision of the last compaction that space requested
	compactNext time.Time    // when the next is allowed
	defragedAt  time.Time
	end         context.CancelFunc
	ended       sync.WaitGroup
}

// reserve returns how many bytes etcd may store beyond a quota.
func reserve(quota int64) int64 { return max(minReserve, quota/reserveShare) }

// spare returns the remaining bytes of a quota below which history is dropped.
func spare(quota int64) int64 { return min(quota/2, max(minLeft, quota/leftShare)) }

// freeOn returns how many bytes users may still write to a file system.
func freeOn(directory string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(directory, &fs); err != nil {
		return 0, fmt.Errorf("measuring the free space of %s: %w", directory, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil //nolint:unconvert // of another type elsewhere
}

// Grow returns an error if writes that need more space than the value that they replace are rejected.
func (s *space) Grow() error {
	if used := s.server.Backend().SizeInUse(); used >= s.quota {
		return fmt.Errorf("the database is full: %s of %s are used", mebibytes(used), mebibytes(s.quota))
	}
	if disk := s.disk.Load(); disk < diskSegments*s.segment {
		return fmt.Errorf("the disk of %s is full: %s are free, %s are required", s.directory, mebibytes(disk), mebibytes(diskSegments*s.segment))
	}
	return nil
}

// Write returns an error if all writes are rejected.
func (s *space) Write() error {
	if disk := s.disk.Load(); disk < diskSegments*s.segment/2 {
		return fmt.Errorf("the disk of %s is full: %s are free, %s are required for any write", s.directory, mebibytes(disk),
			mebibytes(diskSegments*s.segment/2))
	}
	return nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// measure updates the free space of the disk.
func (s *space) measure() error {
	free, err := s.free(s.directory)
	if err == nil {
		s.disk.Store(free)
	}
	return err
}

// start frees space immediately if it is low, and continues to do so until stop.
func (s *space) start(ctx context.Context) error {
	if err := s.measure(); err != nil {
		return err
	}
	s.tidy(ctx)
	background, end := context.WithCancel(context.Background())
	s.end = end
	s.ended.Go(func() {
		tick := time.NewTicker(spaceInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-background.Done():
				return
			}
			_ = s.measure() // the previous value remains valid
			s.tidy(background)
		}
	})
	return nil
}

func (s *space) stop() {
	if s.end != nil {
		s.end()
		s.ended.Wait()
	}
}

// tidy compacts, defragments and disarms the alarm, as needed and possible.
func (s *space) tidy(ctx context.Context) {
	if s.Write() != nil {
		return
	}
	alarmed := s.alarmed()
	if s.Grow() != nil {
		s.server.Backend().ForceCommit() // pages that the last commit replaced become free only after another commit
	}
	if used := s.server.Backend().SizeInUse(); alarmed || used >= s.quota-spare(s.quota) {
		s.compact(ctx)
	}
	file, used := s.server.Backend().Size(), s.server.Backend().SizeInUse()
	if full := alarmed || file >= s.quota; full && file-used > file/10 && s.disk.Load() > used+diskSegments*s.segment &&
		time.Since(s.defragedAt) > defragmentInterval {
		s.defragment(file)
	}
	if alarmed && s.server.Backend().Size() < s.quota+reserve(s.quota) {
		s.disarm(ctx)
	}
}

// compact drops all history.
func (s *space) compact(ctx context.Context) {
	revision := s.server.KV().Rev()
	began := time.Now()
	if revision <= s.compacted || began.Before(s.compactNext) {
		return
	}
	if _, err := s.server.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err == nil {
		s.server.Backend().ForceCommit()
	}
	s.compacted, s.compactNext = revision, began.Add(max(compactInterval, compactShare*time.Since(began)))
}

func (s *space) defragment(before int64) {
	s.defragedAt = time.Now()
	if err := s.server.Backend().Defrag(); err != nil {
		klog.Background().Error(err, "Defragmenting the embedded etcd")
		return
	}
	klog.Background().Info("Defragmented the embedded etcd, which was full", decisionlog.Before, before,
		decisionlog.After, s.server.Backend().Size())
}

// alarmed reports whether etcd rejects writes because it was full.
func (s *space) alarmed() bool {
	for _, alarm := range s.server.Alarms() {
		if alarm.Alarm == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

func (s *space) disarm(ctx context.Context) {
	for _, alarm := range s.server.Alarms() {
		if alarm.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		_, err := s.server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			klog.Background().Error(err, "Disarming the alarm of the embedded etcd")
			return
		}
	}
	klog.Background().Info("The embedded etcd has free space again")
}
