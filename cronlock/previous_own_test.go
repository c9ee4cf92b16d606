package cronlock

import (
	"testing"
	"time"
)

// A process knows of the ends of its own runs, even of those that it could not record. So Previous may be a later tick
// than the records say. A run that failed does not count.
func TestPreviousCountsOwnRunsThatAreNotOnRecord(t *testing.T) {
	j := &Job{}
	j.memory.add(entry{tick: at(0), state: tickOver, start: &record{Attempt: 1}, end: &record{Attempt: 1}})
	j.memory.add(entry{tick: at(2 * time.Minute), state: tickOver, start: &record{Attempt: 1}, end: &record{Attempt: 1}})
	j.memory.add(entry{tick: at(time.Minute), state: tickOver, start: &record{Attempt: 1}, end: &record{Attempt: 1, Error: "no paper"}})

	later := entry{tick: at(90 * time.Second), state: tickOrphaned, start: &record{Attempt: 1}} // by another replica
	got, err := j.findPrevious(t.Context(), later)
	if err != nil || !got.Equal(at(0)) {
		t.Errorf("Previous is %v, want %v: %v", got, at(0), err)
	}
}
