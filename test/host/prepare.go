package main

import (
	"embed"
	"os"
	"strconv"
	"strings"
	"text/template"
)

// files are what the programs of the node are configured with, and what is applied to the cluster.
//
//go:embed files
var files embed.FS

// marker is a file in directories that clusters have written.
const marker = "README"

// prepare writes everything that the node reads.
func (c cluster) prepare() error {
	if err := os.MkdirAll(c.path("log"), 0o755); err != nil {
		return err
	}
	text := "A cluster of kcp-host lives here. make host-down ends it and removes this directory.\n"
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
	// containerd reads every file of the directory that it looks for networks in.
	if err := os.MkdirAll(c.path("cni"), 0o755); err != nil {
		return err
	}
	return os.Rename(c.path("pods.conflist"), c.path("cni", "pods.conflist"))
}

// giveTo lets whoever called sudo read a file.
func giveTo(file string) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil // nobody called sudo
	}
	return os.Chown(file, uid, -1)
}
