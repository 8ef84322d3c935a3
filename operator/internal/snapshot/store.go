// Package snapshot takes and restores snapshots of an etcd, to recover from the loss of all volumes. It runs in the pods of Jobs, which
// report their result to the operator in one line.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Store keeps snapshots by keys, which are relative paths.
type Store interface {
	// Put stores a file atomically: other calls see the complete file, or no file.
	Put(ctx context.Context, key, file string) error
	// Get writes the stored content to a file.
	Get(ctx context.Context, key, file string) error
	// List returns the keys with a prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes the content of a key.
	Delete(ctx context.Context, key string) error
}

// Directory is a store on a volume.
type Directory string

func (d Directory) path(key string) (string, error) {
	if !filepath.IsLocal(key) {
		return "", fmt.Errorf("key %q is outside of the store", key)
	}
	return filepath.Join(string(d), key), nil
}

// Put copies the file to a temporary name, and renames it when it is synced to disk.
func (d Directory) Put(_ context.Context, key, file string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	partial := path + ".partial"
	if err := copyFile(partial, file); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// Get implements Store.
func (d Directory) Get(_ context.Context, key, file string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	return copyFile(file, path)
}

// List implements Store. It omits files that are not complete.
func (d Directory) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	err := filepath.WalkDir(string(d), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		key, err := filepath.Rel(string(d), path)
		if err == nil && strings.HasPrefix(key, prefix) && !strings.HasSuffix(key, ".partial") {
			keys = append(keys, key)
		}
		return err
	})
	slices.Sort(keys)
	return keys, err
}

// Delete implements Store.
func (d Directory) Delete(_ context.Context, key string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	if err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close())
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
