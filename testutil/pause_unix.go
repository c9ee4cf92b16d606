//go:build unix

package testutil

import (
	"os"
	"syscall"
)

// pauseProcess and resumeProcess stop and continue a process.
func pauseProcess(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
