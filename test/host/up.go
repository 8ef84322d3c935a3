package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// packages are the Debian packages of a node, each with one of its programs.
var packages = [][2]string{
	{"containerd", "containerd"}, {"runc", "runc"}, {"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"iptables", "iptables"}, {"conntrack", "conntrack"}, {"ip", "iproute2"}, {"nsenter", "util-linux"}, {"socat", "socat"},
}

// up runs all steps. Each step checks what exists already, so up can be interrupted and run again.
func (c cluster) up(ctx context.Context) error {
	if err := c.complete(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()

	begin := time.Now()
	for _, s := range []struct {
		what    string
		timeout time.Duration // on a busy machine
		do      func(context.Context) error
	}{
		{"started the first process of the node", 0, c.startNode},
		{"containerd is ready", time.Minute, func(ctx context.Context) error { return quiet(c.ctr(ctx, "version")) }},
		{"imported images", 0, c.loadOwn},
		{"the API server is ready", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "get", "--raw=/readyz"))
		}},
		{"applied the objects of the cluster", time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "apply", "--filename", c.path("manifests.yaml")))
		}},
		{"applied cert-manager", time.Minute, c.applyCertManager},
		{"the node is Ready", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+c.NodeName(), "--timeout=5s"))
		}},
		{"DNS is ready", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "--namespace=kube-system", "rollout", "status", "deployment/dns", "--timeout=5s"))
		}},
		{"cert-manager is running", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "--namespace=cert-manager", "rollout", "status", "deployment", "--timeout=5s"))
		}},
		{"cert-manager issues certificates", 3 * time.Minute, c.probeCertManager},
	} {
		if err := c.step(ctx, s.timeout, s.do); err != nil {
			return fmt.Errorf("waiting for this step: %s: %w\nLogs are in %s. The cluster is not removed: "+
				"continue with make host-up, or remove it with make host-down", s.what, err, c.path("log"))
		}
		fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), s.what)
	}
	fmt.Printf("\nexport KUBECONFIG=%s\n", c.Kubeconfig("admin"))
	return nil
}

// step calls do until it succeeds, the timeout expires or the node's first process exits.
func (c cluster) step(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case c.pid() == 0:
			return errors.Join(err, errors.New("the first process of the node has exited, see node.log"))
		case time.Now().After(deadline):
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// complete returns an error if a program or image of the cluster is missing.
func (c cluster) complete() error {
	var missing []string
	for _, p := range packages {
		if _, err := exec.LookPath(p[0]); err != nil {
			missing = append(missing, p[1])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("programs are missing on this machine: make host-packages installs %s", strings.Join(missing, ", "))
	}
	for _, file := range []string{
		c.built("kube"), c.built("pause.tar"), c.built("dns.tar"), c.built("cert-manager.tar"),
		c.built("cert-manager-chart"), filepath.Join(c.bin, "kubectl"), filepath.Join(c.bin, "helm"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%w: build it with make host-programs", err)
		}
	}
	return nil
}

// lock waits until no other up or down runs, and keeps others waiting.
func (c cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.path(".."), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(c.State+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Println("waiting for another kcp-host to finish")
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, err
		}
	}
	return func() { _ = file.Close() }, nil
}

// startNode creates the namespaces, the link to them and their first process, unless they exist.
func (c cluster) startNode(context.Context) error {
	if c.pid() != 0 {
		return nil
	}
	if err := c.remove(); err != nil { // what is left of a cluster whose processes have exited
		return err
	}
	for _, net := range []string{c.PodCIDR(), c.ServiceNet(), c.HostIP() + "/30"} {
		if route, err := exec.Command("ip", "route", "show", "root", net).Output(); err != nil || len(route) > 0 {
			return fmt.Errorf("this machine already has a route to %s, which the cluster needs: select other networks with "+
				"KCP_HOST=%d", net, (c.Number+1)%10)
		}
	}
	if err := c.prepare(); err != nil {
		return err
	}
	ready, release, err := os.Pipe()
	if err != nil {
		return err
	}
	defer release.Close()
	pid, err := c.spawn(ready)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("pid"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return err
	}
	for _, args := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", c.Link(), pid),
		fmt.Sprintf("addr add %s/30 dev %s", c.HostIP(), c.Link()),
		fmt.Sprintf("link set %s up", c.Link()),
		fmt.Sprintf("route add %s via %s", c.PodCIDR(), c.NodeIP()),
		fmt.Sprintf("route add %s via %s", c.ServiceNet(), c.NodeIP()),
	} {
		if err := quiet(exec.Command("ip", strings.Fields(args)...)); err != nil {
			return errors.Join(err, c.remove())
		}
	}
	_, err = release.WriteString("go\n")
	return err
}

// spawn starts the first process, which waits for input from ready.
func (c cluster) spawn(ready *os.File) (int, error) {
	defer ready.Close()
	log, err := os.Create(c.path("log", "node.log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "node")
	cmd.Args[0] = c.nodeTitle()
	cmd.Env = append(os.Environ(), "KCP_HOST="+strconv.Itoa(c.Number))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ready, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // it must survive the end of this terminal session
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() { _ = cmd.Wait() }() // reap it if it exits early
	return cmd.Process.Pid, nil
}

func (c cluster) loadOwn(ctx context.Context) error {
	return c.load(ctx, c.built("pause.tar"), c.built("dns.tar"), c.built("cert-manager.tar"))
}

// applyCertManager renders and applies the chart of cert-manager, with the images that were built. It does not use helm install: when
// that is interrupted, it leaves a release that blocks the next one.
func (c cluster) applyCertManager(ctx context.Context) error {
	manifests, err := c.client(ctx, "helm", "template", "cert-manager", c.built("cert-manager-chart"),
		"--namespace=cert-manager", "--values", c.path("cert-manager.yaml")).Output()
	if err != nil {
		return fmt.Errorf("helm template: %w", err)
	}
	apply := c.kubectl(ctx, "apply", "--server-side", "--filename=-")
	apply.Stdin = bytes.NewReader(manifests)
	return quiet(apply)
}

// probeCertManager checks that the webhook admits an Issuer. Until then, no certificates can be created.
//
// cert-manager's cainjector reads the Secret with the authority of the webhook from one cache, and is woken by another. If the second has
// the Secret first, it finds none and does not look again, so each failed attempt changes the configurations, which wakes it.
func (c cluster) probeCertManager(ctx context.Context) error {
	err := quiet(c.kubectl(ctx, "apply", "--dry-run=server", "--filename", c.path("issuer.yaml")))
	if err == nil {
		return nil
	}
	return errors.Join(err, quiet(c.kubectl(ctx, "annotate", "--overwrite", "mutatingwebhookconfigurations,validatingwebhookconfigurations",
		"cert-manager-webhook", "kcp-host/attempt="+time.Now().Format(time.RFC3339Nano))))
}
