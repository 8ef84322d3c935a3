package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	cgroups = "/sys/fs/cgroup"
	// The two groups of a cluster: its own processes, and those in pods.
	nodeGroup = "node"
	podsGroup = "pods"
)

// hierarchies returns the roots of control groups: one on machines with cgroup v2 only, and otherwise one a controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, nil
	}
	roots, err := filepath.Glob(filepath.Join(cgroups, "*", "cgroup.procs"))
	for i := range roots {
		roots[i] = filepath.Dir(roots[i])
	}
	return roots, err
}

// enterCgroups makes the groups of the cluster, and moves this process into the node's.
func (c cluster) enterCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		top := filepath.Join(root, c.CgroupRoot())
		for _, dir := range []string{top, filepath.Join(top, nodeGroup), filepath.Join(top, podsGroup)} {
			if err := makeCgroup(dir); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(top, nodeGroup, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeCgroup makes a group in which processes can be: with cpuset of v1 it must say where, with v2 its parent must hand
// controllers down.
func makeCgroup(dir string) error {
	parent := filepath.Dir(dir)
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	v2 := err == nil
	for _, controller := range strings.Fields(string(controllers)) {
		// Some cannot be handed down; a kubelet that needs one of them says so.
		_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil || v2 {
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the groups, the innermost first. Their processes have ended, or are about to.
func (c cluster) removeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var dirs []string
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(root, c.CgroupRoot()), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		err := eventually(func() error {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memory returns how many bytes of memory one of the groups uses, page cache that can be dropped apart.
func (c cluster) memory(group string) (int64, error) {
	for _, dir := range []string{filepath.Join(cgroups, "memory", c.CgroupRoot(), group), filepath.Join(cgroups, c.CgroupRoot(), group)} {
		for _, file := range []string{"memory.usage_in_bytes", "memory.current"} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			used, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
			if err != nil {
				return 0, err
			}
			return used - inactive(dir), nil
		}
	}
	return 0, fmt.Errorf("no control group of %s counts memory", group)
}

// inactive returns how many bytes of a group's memory are files that nobody has read for long.
func inactive(dir string) int64 {
	content, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	var bytes int64
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "total_inactive_file" || name == "inactive_file" {
			bytes, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return bytes
}
