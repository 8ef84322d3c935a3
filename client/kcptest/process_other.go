//go:build !linux

package kcptest

import "syscall"

// attributes are those of the test: only Linux ends a process with its parent.
func attributes() *syscall.SysProcAttr { return nil }
