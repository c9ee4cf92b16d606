//go:build !linux

package core

import "time"

// wallStep is a difference between wall clock and monotonic clock that slewing does not explain.
const wallStep = 500 * time.Millisecond

// A suspension knows how long the machine has been suspended since it was made, as far as the wall clock
// tells: by how much it ran ahead of Go's monotonic clock. A wall clock that is set forward looks the same
// and ends leases early, which is the safe side.
type suspension struct{ start time.Time }

func newSuspension() suspension { return suspension{time.Now()} }

func (s suspension) total() time.Duration {
	now := time.Now()
	if ahead := now.Round(0).Sub(s.start.Round(0)) - now.Sub(s.start); ahead > wallStep {
		return ahead
	}
	return 0
}
