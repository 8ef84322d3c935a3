//go:build !linux

package kcptest

import "syscall"

// attributes returns no attributes: only Linux can kill a process when its parent ends.
func attributes() *syscall.SysProcAttr { return nil }
