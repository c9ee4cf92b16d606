package testutil

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process of cmd when this process ends,
// even if it crashes or is killed. Signals from the terminal do not reach the
// process of cmd.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
