// Package race is for tests that the race detector would spoil, or that it makes three times as slow without finding
// more than their smaller sisters do.
package race

import "testing"

// Campaign leaves a test that tries a great many cases to `make sweeps`, which `make test` runs without the race
// detector.
func Campaign(tb testing.TB) {
	if Enabled {
		tb.Skip("a sweep: make sweeps runs it, without the race detector")
	}
}
