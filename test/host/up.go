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

// packages are what Debian has of a node, by a program of each.
var packages = [][2]string{
	{"containerd", "containerd"}, {"runc", "runc"}, {"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"iptables", "iptables"}, {"conntrack", "conntrack"}, {"ip", "iproute2"}, {"nsenter", "util-linux"}, {"socat", "socat"},
}

// up goes through all steps. Each looks at what is there already, so that up can be interrupted and started again.
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
		patient time.Duration // how long it may take on a busy machine
		do      func(context.Context) error
	}{
		{"the node's first process runs", 0, c.startNode},
		{"containerd answers", time.Minute, func(ctx context.Context) error { return quiet(c.ctr(ctx, "version")) }},
		{"images are on the node", 0, c.loadOwn},
		{"the API server is ready", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "get", "--raw=/readyz"))
		}},
		{"the cluster's own objects are applied", time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "apply", "--filename", c.path("manifests.yaml")))
		}},
		{"cert-manager is applied", time.Minute, c.applyCertManager},
		{"the node is Ready", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+c.NodeName(), "--timeout=5s"))
		}},
		{"names resolve", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "--namespace=kube-system", "rollout", "status", "deployment/dns", "--timeout=5s"))
		}},
		{"cert-manager runs", 3 * time.Minute, func(ctx context.Context) error {
			return quiet(c.kubectl(ctx, "--namespace=cert-manager", "rollout", "status", "deployment", "--timeout=5s"))
		}},
		{"cert-manager issues certificates", 3 * time.Minute, c.probeCertManager},
	} {
		if err := c.step(ctx, s.patient, s.do); err != nil {
			return fmt.Errorf("it did not come to this: %s: %w\nThe logs are in %s. What has been started stays; "+
				"make host-up goes on, and make host-down removes it", s.what, err, c.path("log"))
		}
		fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), s.what)
	}
	fmt.Printf("\nexport KUBECONFIG=%s\n", c.Kubeconfig("admin"))
	return nil
}

// step does something until it succeeds, as long as there is hope.
func (c cluster) step(ctx context.Context, patient time.Duration, do func(context.Context) error) error {
	deadline := time.Now().Add(patient)
	for {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case c.pid() == 0:
			return errors.Join(err, errors.New("the node's first process has ended; see node.log"))
		case time.Now().After(deadline):
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// complete looks for everything that a cluster is made of.
func (c cluster) complete() error {
	var missing []string
	for _, p := range packages {
		if _, err := exec.LookPath(p[0]); err != nil {
			missing = append(missing, p[1])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine lacks programs: make host-packages installs %s", strings.Join(missing, ", "))
	}
	for _, file := range []string{
		c.built("kube"), c.built("pause.tar"), c.built("dns.tar"), c.built("cert-manager.tar"),
		c.built("cert-manager-chart"), filepath.Join(c.bin, "kubectl"), filepath.Join(c.bin, "helm"),
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%w: make host-programs builds it", err)
		}
	}
	return nil
}

// lock keeps a second up or down away until this one has ended.
func (c cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.path(".."), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(c.State+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Println("waiting for another kcp-host to end")
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, err
		}
	}
	return func() { _ = file.Close() }, nil
}

// startNode makes the namespaces, the link into them and the first process in them, unless they exist.
func (c cluster) startNode(context.Context) error {
	if c.pid() != 0 {
		return nil
	}
	if err := c.remove(); err != nil { // of a cluster that ended on its own
		return err
	}
	for _, net := range []string{c.PodCIDR(), c.ServiceNet(), c.HostIP() + "/30"} {
		if route, err := exec.Command("ip", "route", "show", "root", net).Output(); err != nil || len(route) > 0 {
			return fmt.Errorf("this machine already has a route into %s, which the cluster needs: choose another with "+
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

// spawn starts the first process, which waits until it reads something from ready.
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
		Setsid:     true, // it outlives this terminal
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie if it ends early
	return cmd.Process.Pid, nil
}

func (c cluster) loadOwn(ctx context.Context) error {
	return c.load(ctx, c.built("pause.tar"), c.built("dns.tar"), c.built("cert-manager.tar"))
}

// applyCertManager applies what the chart of cert-manager's own module consists of, with the images that were built. An
// interrupted helm install would leave a release that nothing can be done with.
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

// probeCertManager asks whether the webhook lets an Issuer in: until it does, nothing that needs certificates can begin.
func (c cluster) probeCertManager(ctx context.Context) error {
	return quiet(c.kubectl(ctx, "apply", "--dry-run=server", "--filename", c.path("issuer.yaml")))
}
