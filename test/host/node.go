package main

import (
	"bufio"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// node is the first process in the namespaces. It configures the node, starts its programs, restarts programs that exit, and never exits
// itself.
func (c cluster) node() error {
	// up has the other end of this pipe, and writes a line when eth0 exists.
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return errors.New("the program that started the node has exited")
	}
	for _, prepare := range []func() error{c.enterCgroups, c.mount, c.connect} {
		if err := prepare(); err != nil {
			return err
		}
	}
	running := map[int]program{}
	for _, p := range c.components() {
		pid, err := c.start(p)
		if err != nil {
			return err
		}
		running[pid] = p
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		p, ours := running[pid]
		if err != nil || !ours {
			continue // an orphaned process of a container
		}
		delete(running, pid)
		log.Printf("%s exited (status %d, signal %d), restarting it", p.name, status.ExitStatus(), status.Signal())
		time.Sleep(500 * time.Millisecond) // so that a program that cannot start does not use all processor time
		if pid, err = c.start(p); err != nil {
			return err
		}
		running[pid] = p
	}
}

// mount hides directories that the containers of the machine and of the cluster must not share.
func (c cluster) mount() error {
	resolvConf, err := filepath.EvalSymlinks("/etc/resolv.conf") // can be a link into /run
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/var/lib/cni", 0o755); err != nil {
		return err
	}
	type mount struct {
		source, target, kind string
		flags                uintptr
	}
	mounts := []mount{{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE}, {"proc", "/proc", "proc", 0}}
	for _, dir := range []string{"/run", "/var/log", "/var/lib/cni"} {
		mounts = append(mounts, mount{"tmpfs", dir, "tmpfs", 0})
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(resolvConf), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(resolvConf, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := syscall.Mount(c.path("node-resolv.conf"), resolvConf, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", resolvConf, err)
	}
	// Mounts by the kubelet must propagate into containers.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// connect sets the host name and address of the node, and makes it a router.
func (c cluster) connect() error {
	if err := syscall.Sethostname([]byte(c.NodeName())); err != nil {
		return err
	}
	for _, args := range []string{
		"link set lo up",
		"addr add " + c.NodeIP() + "/30 dev eth0",
		"link set eth0 up",
		"route add default via " + c.HostIP(),
	} {
		if err := quiet(exec.Command("ip", strings.Fields(args)...)); err != nil {
			return err
		}
	}
	for _, sysctl := range []string{"net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"} {
		if err := os.WriteFile(filepath.Join("/proc/sys", sysctl), []byte("1"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program and returns its process ID. The caller reaps the process.
func (c cluster) start(p program) (int, error) {
	out, err := os.OpenFile(c.path("log", p.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	process, err := os.StartProcess(p.file, append([]string{p.name}, p.args...), &os.ProcAttr{
		Files: []*os.File{null, out, out},
		Env:   []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		return 0, err
	}
	log.Printf("started %s as process %d", p.name, process.Pid)
	pid := process.Pid
	return pid, process.Release()
}
