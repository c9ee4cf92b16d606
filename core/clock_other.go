//go:build !linux

package core

import (
	"sync"
	"time"
)

// wallStep is a difference between wall clock and monotonic clock that slewing does not explain.
const wallStep = 500 * time.Millisecond

// A suspension knows how long the machine has been suspended since it was made, as far as the wall clock
// tells: by how much it ran ahead of Go's monotonic clock between two looks. A wall clock that is set forward
// looks the same and ends leases early, which is the safe side; one that is set back takes nothing away.
type suspension struct{ *wallWatch }

type wallWatch struct {
	mu   sync.Mutex
	last time.Time
	sum  time.Duration
}

func newSuspension() suspension { return suspension{&wallWatch{last: time.Now()}} }

func (w *wallWatch) total() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if ahead := now.Round(0).Sub(w.last.Round(0)) - now.Sub(w.last); ahead > wallStep {
		w.sum += ahead
	}
	w.last = now
	return w.sum
}
