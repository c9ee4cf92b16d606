// Package race is for tests that the race detector would spoil, or that it makes three times as slow without finding
// more than their smaller sisters do.
package race

import (
	"os"
	"testing"

	"github.com/lockkit/lockkit/internal/stall"
)

// Campaign leaves a test that tries a great many cases to `make sweeps`, which `make test` runs without the race
// detector, and to `make soak`, which sets LOCKKIT_RACE=all.
func Campaign(tb testing.TB) {
	if Enabled && os.Getenv("LOCKKIT_RACE") != "all" {
		tb.Skip("a sweep: make sweeps runs it, without the race detector")
	}
}

// Allocations leaves a test that counts allocations to builds without the race detector and without stalls, both of
// which allocate.
func Allocations(tb testing.TB) {
	if Enabled || stall.Enabled {
		tb.Skip("this build allocates for itself: make sim-short runs it")
	}
}
