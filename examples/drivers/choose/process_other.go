//go:build !linux

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// Elsewhere no holder is paused, and who is root cannot run PostgreSQL.

func stopProcess(*os.Process) error           { return errNoPause }
func continueProcess(*os.Process) error       { return errNoPause }
func dieWithParent(*exec.Cmd, syscall.Signal) {}
func asNobody(*exec.Cmd, string) error        { return nil }
