package main

import (
	"embed"
	"os"
	"strconv"
	"strings"
	"text/template"
)

// files are the configuration of the node's programs, and the manifests for the cluster.
//
//go:embed files
var files embed.FS

// marker is a file that marks the directory of a cluster.
const marker = "README"

// prepare writes all files of the node.
func (c cluster) prepare() error {
	if err := os.MkdirAll(c.path("log"), 0o755); err != nil {
		return err
	}
	text := "This directory belongs to a cluster of kcp-host. To stop the cluster and remove the directory, run make host-down.\n"
	if err := os.WriteFile(c.path(marker), []byte(text), 0o644); err != nil {
		return err
	}
	if err := c.saveSysctls(); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	return c.writePKI()
}

func (c cluster) writeFiles() error {
	templates, err := template.ParseFS(files, "files/*")
	if err != nil {
		return err
	}
	for _, t := range templates.Templates() {
		var text strings.Builder
		if err := t.Execute(&text, c); err != nil {
			return err
		}
		if err := os.WriteFile(c.path(t.Name()), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	// containerd reads every file in its directory of network configurations.
	if err := os.MkdirAll(c.path("cni"), 0o755); err != nil {
		return err
	}
	return os.Rename(c.path("pods.conflist"), c.path("cni", "pods.conflist"))
}

// giveTo makes a file readable for the user who called sudo.
func giveTo(file string) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil // not run by sudo
	}
	return os.Chown(file, uid, -1)
}
