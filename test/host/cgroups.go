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
	// A cluster has two groups: one for the processes of the node, and one for pods.
	nodeGroup = "node"
	podsGroup = "pods"
)

// hierarchies returns the roots of the control groups: one root with cgroup v2, and one for each controller with cgroup v1.
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

// enterCgroups creates the groups of the cluster, and moves this process into the group of the node.
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

// makeCgroup creates a group that can contain processes. With cgroup v1, the group needs a cpuset of its own; with cgroup v2, the parent
// must delegate its controllers.
func makeCgroup(dir string) error {
	parent := filepath.Dir(dir)
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	v2 := err == nil
	for _, controller := range strings.Fields(string(controllers)) {
		// Some controllers cannot be delegated. A kubelet that needs one of them reports this.
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

// removeCgroups removes the groups, the innermost first. Their processes have exited or are exiting.
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

// memory returns the memory that a group uses, in bytes, without inactive page cache.
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
	return 0, fmt.Errorf("finding the memory usage of control group %s: no memory controller", group)
}

// inactive returns the size of the inactive page cache of a group, in bytes.
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
