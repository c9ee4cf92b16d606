package stage

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd's process when this one ends, however it ends: a child that is paused could not
// end itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
