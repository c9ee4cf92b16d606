package clock

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// A suspension knows how long the machine has been suspended since it was made: what CLOCK_BOOTTIME counts
// and CLOCK_MONOTONIC, Go's clock, does not. As a difference of two real clocks it stays zero inside a
// testing/synctest bubble.
//
// To ask the kernel takes system calls, and leases are looked at all the time. So it is asked only when wall clock
// and monotonic clock, which cost next to nothing, have drifted apart since: the wall clock runs on during a
// suspension. It would have to be set back by just as much, between the same two looks, to hide one.
type suspension struct {
	base  time.Time // when it was made
	boot  time.Duration
	ahead atomic.Int64 // of the wall clock, when the kernel was last asked
	sum   atomic.Int64 // what it said
}

// apart is a difference between wall clock and monotonic clock that is looked into: slewing takes seconds for it.
const apart = time.Millisecond

func newSuspension(now time.Time) *suspension {
	s := &suspension{base: now, boot: suspendedSinceBoot()}
	s.ahead.Store(now.UnixNano())
	return s
}

func (s *suspension) total(now time.Time) time.Duration {
	ahead := now.UnixNano() - int64(now.Sub(s.base))
	d := time.Duration(ahead - s.ahead.Load())
	unchanged := -apart < d && d < apart
	if unchanged {
		return time.Duration(s.sum.Load())
	}
	s.raise(int64(suspendedSinceBoot() - s.boot))
	s.ahead.Store(ahead) // after the sum: who finds this finds that
	return time.Duration(s.sum.Load())
}

// raise makes sum at least said.
func (s *suspension) raise(said int64) {
	for {
		known := s.sum.Load()
		if said <= known {
			return
		}
		swapped := s.sum.CompareAndSwap(known, said)
		if swapped {
			return
		}
	}
}

// Suspend makes a stopwatch believe that the machine has just been suspended for d. It is for tests.
func (s *suspension) Suspend(d time.Duration) {
	s.boot -= d
	s.ahead.Add(-int64(d))
}

func suspendedSinceBoot() time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 4 { // a thread that is preempted between the two readings says too much
		before, boot := readClock(clockMonotonic), readClock(clockBoottime)
		if before == 0 || boot == 0 {
			return 0 // not to be had here: Go's clock alone
		}
		least = min(least, boot-before)
	}
	return least.Round(time.Millisecond) // the readings are not simultaneous; their noise must not look like time
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
