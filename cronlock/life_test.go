package cronlock

import "testing"

// follows is what the rules say of a state and of what happens to it, with a start left.
func follows(h happening, s state) state {
	claimed := s == taken || s == retaken
	switch {
	case h == looked && (s == free || s == orphan): // nobody runs the job: the look claims the tick
		return s + taken - free
	case h == started && claimed:
		return running
	case (h == givenBack || h == died) && claimed: // a claim that comes to nothing gives the tick back
		return s - taken + free
	case h == returned && s == running:
		return over
	case (h == stopped || h == died) && s == running: // started and not completed
		return orphan
	}
	return impossible
}

// The table says of every state and happening what the rules say, and no tick without starts left waits for another.
func TestLife(t *testing.T) {
	if taken != free+1 || retaken != orphan+1 {
		t.Fatal("a claim is not the state after the one that it claims")
	}
	for h := range happenings {
		for s := range states {
			want := follows(h, s)
			if got := s.after(h, 1); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
			if want == orphan {
				want = over
			}
			if got := s.after(h, 0); got != want {
				t.Errorf("state %d, happening %d, no start left: %d, want %d", s, h, got, want)
			}
		}
	}
}
