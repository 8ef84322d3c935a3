package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// The operator and the objects that it manages.
const (
	operatorName = "kcp-operator" // name of the release and of its namespace
	kcpPatience  = 10 * time.Minute
)

//go:embed kcp.yaml
var kcpManifest string

// KCPIP is the address of the Service of kcp, which the machine can reach.
func (c cluster) KCPIP() string { return fmt.Sprintf("10.%d.0.100", 96+c.Number) }

// operator installs the operator of this repository, and creates a small kcp. It can run again with other images.
func (c cluster) operator(ctx context.Context) error {
	if c.pid() == 0 {
		return errNotRunning
	}
	begin := time.Now()
	done := func(what string) { fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), what) }
	tags := map[string]string{}
	for _, image := range []string{"kcp", operatorName} {
		tag, err := c.loadTagged(ctx, image)
		if err != nil {
			return err
		}
		tags[image] = tag
	}
	if err := c.load(ctx, c.packed("etcd")); err != nil { // the tag of etcd is its version
		return err
	}
	done("imported images")
	if err := c.installOperator(ctx, tags); err != nil {
		return fmt.Errorf("installing the operator: %w", err)
	}
	done("installed the operator, and tested that it is ready")
	if err := c.applyKCP(ctx, tags["kcp"]); err != nil {
		return err
	}
	done("created RootShard kcp and Kubeconfig admin")
	for _, object := range []string{"rootshard/kcp", "kubeconfig/admin"} {
		if err := c.awaitReady(ctx, object, done); err != nil {
			return err
		}
	}
	kubeconfig, err := c.writeKCPKubeconfig(ctx)
	if err != nil {
		return err
	}
	fmt.Printf(
		"\nkcp is ready. To use it:\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n  kubectl ws tree\n  kubectl create workspace team-a --enter\n"+
			"\nThe cluster on which it runs:\n\n  export KUBECONFIG=%s\n  kubectl get kcp\n",
		kubeconfig,
		c.bin,
		c.Kubeconfig("admin"),
	)
	return nil
}

// packed returns the path of the archive of an image.
func (c cluster) packed(name string) string { return c.built(filepath.Join("operator", name+".tar")) }

// loadTagged imports an image into the node, with a tag derived from its content, because nodes do not pull a tag that they have.
func (c cluster) loadTagged(ctx context.Context, name string) (string, error) {
	archive := c.packed(name)
	file, err := os.Open(archive)
	if err != nil {
		return "", fmt.Errorf("%w: build it with make host-operator", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	if err := c.load(ctx, archive); err != nil {
		return "", err
	}
	tag := "host-" + hex.EncodeToString(sum.Sum(nil)[:6])
	repository := "localhost/" + name
	return tag, quiet(c.ctr(ctx, "images", "tag", "--force", repository+":host", repository+":"+tag))
}

func (c cluster) installOperator(ctx context.Context, tags map[string]string) error {
	args := []string{
		"upgrade", "--install", operatorName, "charts/" + operatorName, "--namespace=" + operatorName, "--create-namespace",
		"--wait", "--timeout=3m", "--set=image.repository=localhost/" + operatorName, "--set=image.tag=" + tags[operatorName],
		"--set=kcpImage=localhost/kcp:" + tags["kcp"], "--set=etcdRepository=localhost/etcd",
	}
	owner, err := c.kubectl(ctx, "get", "crd", "rootshards.operator.kcp.io", "--ignore-not-found",
		`--output=jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}`).Output()
	if err != nil {
		return err
	}
	if namespace := string(owner); namespace != "" && namespace != operatorName {
		args = append(args, "--take-ownership") // of definitions that a release in another namespace created
	}
	if err := quiet(c.client(ctx, "helm", args...)); err != nil {
		return err
	}
	return quiet(c.client(ctx, "helm", "test", operatorName, "--namespace="+operatorName, "--logs", "--timeout=3m"))
}

func (c cluster) applyKCP(ctx context.Context, tag string) error {
	manifest, err := template.New("kcp").Parse(kcpManifest)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := manifest.Execute(&text, map[string]string{"Address": c.KCPIP(), "Tag": tag}); err != nil {
		return err
	}
	apply := c.kubectl(ctx, "apply", "--filename=-")
	apply.Stdin = &text
	return quiet(apply)
}

// awaitReady waits until an object is Ready, and prints the messages of its condition.
func (c cluster) awaitReady(ctx context.Context, object string, progress func(string)) error {
	deadline, last := time.Now().Add(kcpPatience), ""
	for {
		out, err := c.kubectl(ctx, "get", object, `--output=jsonpath={.metadata.generation} {.status.observedGeneration} `+
			`{.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}`).Output()
		fields := strings.SplitN(string(out), " ", 4)
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case err == nil && len(fields) == 4 && fields[0] == fields[1] && fields[2] == "True":
			progress(object + " is Ready")
			return nil
		case err == nil && len(fields) == 4 && fields[3] != last && fields[2] == "False":
			last = fields[3]
			progress(object + ": " + last)
		case time.Now().After(deadline):
			return fmt.Errorf(
				"waiting for %s: not Ready after %s: %s; inspect it with KUBECONFIG=%s kubectl describe %s",
				object,
				kcpPatience,
				last,
				c.Kubeconfig("admin"),
				object,
			)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// writeKCPKubeconfig writes a kubeconfig for kcp that works on this machine, and returns its path.
func (c cluster) writeKCPKubeconfig(ctx context.Context) (string, error) {
	content, err := c.kubectl(ctx, "get", "secret", "admin-kubeconfig", "--output=go-template={{.data.kubeconfig | base64decode}}").Output()
	if err != nil {
		return "", err
	}
	file := c.Kubeconfig("kcp")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", err
	}
	if err := giveTo(file); err != nil {
		return "", err
	}
	return file, quiet(c.client(ctx, "kubectl", "config", "use-context", "external", "--kubeconfig="+file))
}
