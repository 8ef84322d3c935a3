package kcptest

import "syscall"

// attributes let the server end with the test, even if the test panics or is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
