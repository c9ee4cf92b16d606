package cronlock

import "testing"

// follows returns the state that follows s by the rules if h happens and a start is left.
func follows(h transition, s state) state {
	claimed := s == tickClaimed || s == tickReclaimed
	switch {
	case h == onClaim && (s == tickFree || s == tickOrphaned): // no replica runs the job: the poll claims the tick
		return s + tickClaimed - tickFree
	case h == onStart && claimed:
		return tickRunning
	case (h == onRelease || h == onDeath) && claimed: // a claim without a start leaves the tick as it was
		return s - tickClaimed + tickFree
	case h == onCompletion && s == tickRunning:
		return tickOver
	case (h == onInterruption || h == onDeath) && s == tickRunning: // started and not completed
		return tickOrphaned
	}
	return impossible
}

// The table of transitions follows the rules in every state. A tick without starts left is over instead of orphaned.
func TestLife(t *testing.T) {
	if tickClaimed != tickFree+1 || tickReclaimed != tickOrphaned+1 {
		t.Fatal("a claim is not the state after the one that it claims")
	}
	for h := range transitionCount {
		for s := range stateCount {
			want := follows(h, s)
			if got := s.next(h, 1); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
			if want == tickOrphaned {
				want = tickOver
			}
			if got := s.next(h, 0); got != want {
				t.Errorf("state %d, happening %d, no start left: %d, want %d", s, h, got, want)
			}
		}
	}
}
