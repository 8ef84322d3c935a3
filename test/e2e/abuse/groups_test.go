package abuse

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	// Weights of control groups with cgroup v2. With v1, 1024 shares correspond to a weight of 100.
	attackersWeight, othersWeight, weightOfAll = 1, 100, 1000
	sharesOfWeight                             = 1024.0 / 100
)

// divide creates a control group for this process and its children, and returns one for attackers, which get the processor time that the
// others do not use. It returns "" if this process cannot create control groups.
func divide(t *testing.T) string {
	t.Helper()
	version, attribute, scale := "/sys/fs/cgroup", "cpu.weight", 1.0
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err != nil || !strings.Contains(string(controllers), "cpu") {
		version, attribute, scale = "/sys/fs/cgroup/cpu", "cpu.shares", sharesOfWeight
	}
	if _, err := os.Stat(filepath.Join(version, "cgroup.procs")); err != nil {
		return ""
	}
	all, err := os.MkdirTemp(version, "kcp-abuse-")
	if err != nil {
		return ""
	}
	t.Cleanup(func() { _ = os.Remove(all) })
	_ = write(filepath.Join(all, "cgroup.subtree_control"), "+cpu") // missing with version 1
	newGroup := func(name string, weight float64) string {
		group := filepath.Join(all, name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := write(filepath.Join(group, attribute), strconv.Itoa(int(weight*scale))); err != nil {
			t.Fatal(err)
		}
		return group
	}
	newGroup(".", weightOfAll)
	others, attackers := newGroup("others", othersWeight), newGroup("attackers", attackersWeight)
	// A weight sets the share of processor time in the long run. An idle group also yields at once; kernels before 5.15 have no idle
	// groups.
	_ = write(filepath.Join(attackers, "cpu.idle"), "1")
	t.Cleanup(func() {
		_ = os.Remove(attackers)
		_ = os.Remove(others)
	})
	enter(t, others, os.Getpid())
	t.Cleanup(func() { enter(t, version, os.Getpid()) })
	return attackers
}

// confined returns a command for an attacker that will enter the group of attackers. Without such a group, it has the lowest priority.
func confined(group, program string) *exec.Cmd {
	if group == "" {
		return exec.Command("chrt", "--idle", "0", program)
	}
	return exec.Command(program)
}

// enter moves a process to a group.
func enter(t *testing.T, group string, pid int) {
	t.Helper()
	if err := write(filepath.Join(group, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
}

// write writes to an existing file of the kernel.
func write(file, content string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(content)
	return err
}
