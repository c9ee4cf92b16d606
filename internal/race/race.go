// Package race skips tests in builds with the race detector: tests that it would falsify, and tests that it makes three
// times as slow without finding more than smaller tests do.
package race

import (
	"os"
	"testing"

	"github.com/lockkit/lockkit/internal/stall"
)

// SkipSweep skips a test of very many cases in builds with the race detector, unless LOCKKIT_RACE is "all", as in
// `make soak`. `make sweeps`, which is a part of `make test`, runs such tests without the race detector.
func SkipSweep(tb testing.TB) {
	if !Enabled {
		return
	}

	if os.Getenv("LOCKKIT_RACE") != "all" {
		tb.Skip("a sweep: make sweeps runs it, without the race detector")
	}
}

// SkipAllocations skips a test that counts allocations in builds with the race detector or with stalls, because both
// allocate.
func SkipAllocations(tb testing.TB) {
	// Both builds allocate for themselves.
	allocates := Enabled || stall.Enabled
	if allocates {
		tb.Skip("this build allocates for itself: make sim-short runs it")
	}
}
