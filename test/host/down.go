package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// sysctls are the settings of the machine that a kubelet changes.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

func (c cluster) down() error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	existed := c.exists()
	if err := c.remove(); err != nil {
		return err
	}
	if existed {
		fmt.Printf("removed the cluster and %s\n", c.State)
	} else {
		fmt.Println("no cluster to remove")
	}
	return nil
}

func (c cluster) exists() bool {
	_, err := os.Stat(c.State)
	return err == nil
}

// remove kills the cluster if it runs, and removes its files, links and control groups.
func (c cluster) remove() error {
	if !c.exists() {
		return nil
	}
	if pid := c.pid(); pid != 0 {
		// When the first process of a PID namespace exits, the kernel kills the others, and then removes their mounts and networks.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		if err := eventually(func() error { return unless(c.pid() != 0, "process %d has not exited", pid) }); err != nil {
			return err
		}
	}
	if err := exec.Command("ip", "link", "show", c.Link()).Run(); err == nil {
		// The kernel removes the link with its other end, shortly after the processes have exited.
		_ = exec.Command("ip", "link", "delete", c.Link()).Run()
	}
	if err := c.removeCgroups(); err != nil {
		return err
	}
	c.restoreSysctls()
	if entries, err := os.ReadDir(c.State); err != nil {
		return err
	} else if _, err := os.Stat(c.path(marker)); err != nil && len(entries) > 0 {
		return fmt.Errorf("removing %s: it is not the directory of a cluster, because %s is missing: remove it yourself", c.State, marker)
	}
	return eventually(func() error { return os.RemoveAll(c.State) })
}

func unless(wrong bool, format string, args ...any) error {
	if wrong {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// eventually calls do until it succeeds, for as long as the kernel may take to clean up.
func eventually(do func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c cluster) saveSysctls() error {
	var saved strings.Builder
	for _, name := range sysctls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&saved, "%s=%s\n", name, strings.TrimSpace(string(value)))
	}
	return os.WriteFile(c.path("sysctls"), []byte(saved.String()), 0o644)
}

// restoreSysctls restores the settings. It ignores errors.
func (c cluster) restoreSysctls() {
	saved, err := os.ReadFile(c.path("sysctls"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(saved)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
		}
	}
}
