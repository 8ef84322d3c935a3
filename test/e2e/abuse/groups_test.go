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
	// weights of control groups of version 2. Version 1 has 1024 shares where version 2 has a weight of 100.
	attackersWeight, othersWeight, weightOfAll = 1, 100, 1000
	sharesOfWeight                             = 1024.0 / 100
)

// divide makes a control group for this process and those that it starts, and returns one for attackers, which get what the others
// leave of the processor. It is empty where this process may not make control groups.
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
	_ = write(filepath.Join(all, "cgroup.subtree_control"), "+cpu") // which version 1 does not have
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
	// A weight says who gets how much in the long run. An idle group gives way at once as well; kernels before 5.15 have none.
	_ = write(filepath.Join(attackers, "cpu.idle"), "1")
	t.Cleanup(func() {
		_ = os.Remove(attackers)
		_ = os.Remove(others)
	})
	enter(t, others, os.Getpid())
	t.Cleanup(func() { enter(t, version, os.Getpid()) })
	return attackers
}

// confined returns a command for an attacker, who is to enter the group of attackers, or yields to all others if there is none.
func confined(group, program string) *exec.Cmd {
	if group == "" {
		return exec.Command("chrt", "--idle", "0", program)
	}
	return exec.Command(program)
}

// enter moves a process into a group.
func enter(t *testing.T, group string, pid int) {
	t.Helper()
	if err := write(filepath.Join(group, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
}

// write writes to a file of the kernel, which exists.
func write(file, content string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(content)
	return err
}
