package testutil

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd's process when this one ends, however
// it ends; signals from the terminal reach this one only.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
