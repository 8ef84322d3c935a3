package kcptest

import "syscall"

// attributes make the kernel kill the server when the test process ends, even after a panic or SIGKILL.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
