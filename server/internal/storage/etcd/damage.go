package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// ErrDamaged means that files of etcd are damaged.
var ErrDamaged = errors.New("the file is damaged")

// remedy is the next step in errors about damaged files.
const remedy = "restore a copy of the directory, or move the directory away to start without its data"

// logPatience is how long a start may take before the write-ahead log is checked: the start of etcd does not return if it cannot read
// the log.
const logPatience = 3 * time.Second

func damaged(file string, cause any) error {
	return fmt.Errorf("%s: %w: %v; %s", file, ErrDamaged, cause, remedy)
}

func databaseFile(data string) string { return filepath.Join(data, "member", "snap", "db") }

// checkDatabase returns the index of the last entry of the log that a database contains, and an error for a database that would
// end the process when it is used.
func checkDatabase(data string) (applied uint64, err error) {
	file := databaseFile(data)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the log may be complete
	}
	if err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		if snapshots, _ := filepath.Glob(filepath.Join(data, "member", "snap", "*.snap")); len(snapshots) > 0 {
			return 0, damaged(file, "the file is empty")
		}
		return 0, nil
	}
	err = guarded(file, func() error {
		db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		if errors.Is(err, bolterrors.ErrTimeout) || errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err != nil {
			return damaged(file, err)
		}
		defer db.Close()
		return db.View(func(tx *bolt.Tx) error {
			if tx.Size() > info.Size() {
				return damaged(file, fmt.Sprintf("the file has %d of %d bytes", info.Size(), tx.Size()))
			}
			if meta := tx.Bucket([]byte("meta")); meta != nil {
				if index := meta.Get([]byte("consistent_index")); len(index) == 8 {
					applied = binary.BigEndian.Uint64(index)
				}
			}
			return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error {
				bucket.Cursor().First()
				bucket.Cursor().Last()
				return nil
			})
		})
	})
	return applied, err
}

// guarded turns a panic, or the fault of a mapped file that is too short, into an error about file.
func guarded(file string, run func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = damaged(file, r)
		}
	}()
	return run()
}

// checkLog returns an error for a write-ahead log that cannot be read, or ends before the entry that the database has applied.
func checkLog(data string, applied uint64) error {
	directory := filepath.Join(data, "member", "wal")
	if !wal.Exist(directory) {
		return nil
	}
	return guarded(directory, func() error {
		last := lastLog(directory)
		if blank(last) {
			return damaged(last, "the first record is missing")
		}
		known, err := wal.ValidSnapshotEntries(zap.NewNop(), directory)
		if err != nil {
			return damaged(last, err)
		}
		if len(known) == 0 {
			return damaged(last, "the first record is missing")
		}
		snapshot := known[len(known)-1]
		if _, err := wal.Verify(zap.NewNop(), directory, snapshot); err != nil {
			return damaged(last, err)
		}
		log, err := wal.OpenForRead(zap.NewNop(), directory, snapshot)
		if err != nil {
			return damaged(last, err)
		}
		defer log.Close()
		end := snapshot.GetIndex()
		if _, _, entries, err := log.ReadAll(); err == nil && len(entries) > 0 {
			end = entries[len(entries)-1].GetIndex()
		}
		if end < applied {
			return damaged(last, fmt.Sprintf("the last entry is %d, but the database contains entry %d", end, applied))
		}
		return nil
	})
}

// blank reports whether a file of the log begins with zeros, which a complete file never does.
func blank(file string) bool {
	log, err := os.Open(file)
	if err != nil {
		return false
	}
	defer log.Close()
	var length [8]byte
	_, err = io.ReadFull(log, length[:])
	return err == nil && length == [8]byte{}
}

// lastLog returns the most recently written file of the log: etcd does not report which file it could not read.
func lastLog(directory string) string {
	files, _ := filepath.Glob(filepath.Join(directory, "*.wal"))
	if len(files) == 0 {
		return directory
	}
	return slices.Max(files)
}

// launch is embed.StartEtcd, which ends the process, or does not return, with some damaged files. applied is what checkDatabase returns.
func launch(config *embed.Config, applied uint64) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		var r result
		r.err = guarded(databaseFile(config.Dir), func() (err error) {
			r.etcd, err = embed.StartEtcd(config)
			return err
		})
		started <- r
	}()
	var r result
	select {
	case r = <-started:
	case <-time.After(logPatience):
		if err := checkLog(config.Dir, applied); err != nil {
			return nil, err
		}
		r = <-started
	}
	if r.err != nil {
		if err := checkLog(config.Dir, applied); err != nil {
			return nil, err
		}
	}
	return r.etcd, r.err
}
