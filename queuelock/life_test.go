package queuelock

import "testing"

// follows is what the rules say of a state and of what happens in it.
func follows(h happening, s state) state {
	asks := s <= persisting
	runs := s == running || s == overstaying
	switch {
	case asks && h == granted:
		return running
	case asks && h == completed: // rule 1: it is remembered
		return duplicated
	case asks && h == wrong:
		return unfit
	case asks && h == ended: // asynq has taken the task back
		return given
	case s == persisting && h == late: // rule 4: only a last attempt is archived
		return archived
	case h == late:
		return impossible
	case s == persisting && (h == held || h == unreachable || h == closed || h == lost): // rule 3: it waits for either
		return persisting
	case s == trying && h == held: // rule 3: it waits once
		return waiting
	case s == trying && h == unreachable:
		return stranded
	case asks && h == held || s == trying && h == crowded: // … and is given back
		return contended
	case asks && (h == unreachable || h == closed || h == lost):
		return unavailable
	case runs && h == ended: // rule 2: its leases are held until it returns
		return overstaying
	case s == settling && h == ended, (runs || s == settling) && h == lost:
		return s
	case runs && h == succeeded: // rule 5: it is recorded first
		return settling
	case runs && h == failed: // … and all else is asynq's business
		return finished
	case runs && h == asksForRest:
		return cooled
	case runs && h == cooledAtLast:
		return archived
	case s == settling && h == recorded:
		return finished
	case s == settling && h == rejected:
		return refused
	}
	return impossible
}

// The table says of every state and happening what the rules say.
func TestLife(t *testing.T) {
	for h := range happenings {
		for s := range duplicated {
			if got, want := life[h][s], follows(h, s); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
		}
	}
}
