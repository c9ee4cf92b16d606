package clock

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The ids of clocks on Linux.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// A suspension measures how long the machine has been suspended since the suspension was made: the time that
// CLOCK_BOOTTIME counts and CLOCK_MONOTONIC, Go's clock, does not. Inside a testing/synctest bubble it stays zero,
// because it is the difference of two real clocks.
//
// To read these clocks takes system calls, and the time is read often. So they are only read if the wall clock and
// the monotonic clock, which cost next to nothing, have drifted apart since the last time: the wall clock runs during
// a suspension. Only a wall clock that is set back by just as much, between the same two readings, would hide a
// suspension.
//
// All goroutines share a suspension without a lock.
type suspension struct {
	base  time.Time     // when the suspension was made
	boot  time.Duration // the time in suspension from boot until then
	ahead atomic.Int64  // the wall clock minus the monotonic clock when the kernel was last asked, in ns
	total atomic.Int64  // the longest time in suspension that the kernel has reported, in ns
}

// maxDrift is the difference between the clocks from which the kernel is asked. Slewing takes seconds to reach it.
const maxDrift = time.Millisecond

func newSuspension(now time.Time) *suspension {
	s := &suspension{base: now, boot: suspendedSinceBoot()}
	s.ahead.Store(now.UnixNano())
	return s
}

// duration returns the time in suspension until now.
func (s *suspension) duration(now time.Time) time.Duration {
	ahead := now.UnixNano() - int64(now.Sub(s.base))
	drift := time.Duration(ahead - s.ahead.Load())
	unchanged := -maxDrift < drift && drift < maxDrift
	if unchanged {
		return time.Duration(s.total.Load())
	}

	// The total comes first: a goroutine that reads the new ahead must read the new total.
	s.raise(int64(suspendedSinceBoot() - s.boot))
	s.ahead.Store(ahead)
	return time.Duration(s.total.Load())
}

// raise sets the total, unless it is greater already: a goroutine with an older reading may come late.
func (s *suspension) raise(total int64) {
	for {
		known := s.total.Load()
		if total <= known {
			return
		}

		swapped := s.total.CompareAndSwap(known, total)
		if swapped {
			return
		}
	}
}

// Suspend simulates a suspension of the machine for d, for tests.
func (s *suspension) Suspend(d time.Duration) {
	s.boot -= d
	s.ahead.Add(-int64(d))
}

// suspendedSinceBoot returns the time in suspension since boot; 0 if the kernel does not have these clocks.
func suspendedSinceBoot() time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 4 {
		// If the thread is preempted between the two readings, the difference is too large.
		before, boot := readClock(clockMonotonic), readClock(clockBoottime)
		if before == 0 || boot == 0 {
			return 0
		}
		least = min(least, boot-before)
	}

	// The readings are not simultaneous. Their noise must not count as time.
	return least.Round(time.Millisecond)
}

// readClock returns the time of a clock of the kernel, 0 if it fails.
func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
