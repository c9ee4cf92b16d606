package core

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
	// preempted is a gap between two clock readings too long to be their own.
	preempted = 100 * time.Microsecond
)

// A suspension knows how long the machine has been suspended since it was made: what CLOCK_BOOTTIME counts
// and CLOCK_MONOTONIC, Go's clock, does not. As a difference of two real clocks it stays zero inside a
// testing/synctest bubble.
type suspension time.Duration

func newSuspension() suspension { return suspension(suspendedSinceBoot()) }

func (s suspension) total() time.Duration { return suspendedSinceBoot() - time.Duration(s) }

func suspendedSinceBoot() time.Duration {
	var least time.Duration
	for try := range 4 {
		before := readClock(clockMonotonic)
		boot := readClock(clockBoottime)
		after := readClock(clockMonotonic)
		if before == 0 || boot == 0 {
			return 0 // not to be had here: Go's clock alone
		}
		if d := boot - before; try == 0 || d < least {
			least = d
		}
		if after-before < preempted {
			break
		}
	}
	return least.Round(time.Millisecond) // the readings are not simultaneous; their noise must not look like time
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
