package cronlock

import "testing"

// Every cell of the table of a tick's life, in words.
func TestLife(t *testing.T) {
	const no = impossible
	want := map[happening][states]state{
		//            free, taken, running, orphan, retaken, over
		looked:     {taken, taken, running, retaken, retaken, over},
		started:    {no, running, no, no, running, no},
		refused:    {no, free, no, no, orphan, no},
		givenBack:  {no, free, no, no, orphan, no},
		returned:   {no, no, over, no, no, no},
		stopped:    {no, no, orphan, no, no, no},
		died:       {no, free, orphan, no, orphan, no},
		superseded: {over, taken, running, orphan, retaken, over},
		outdated:   {over, taken, running, orphan, retaken, over},
	}
	for h := range happenings {
		for s := range states {
			if got := s.after(h, 1); got != want[h][s] {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want[h][s])
			}
			last := want[h][s]
			if last == orphan {
				last = over
			}
			if got := s.after(h, 0); got != last {
				t.Errorf("state %d, happening %d, no start left: %d, want %d", s, h, got, last)
			}
		}
	}
}
