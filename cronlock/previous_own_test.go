package cronlock

import (
	"testing"
	"time"
)

// A process knows that its own run has completed even if it could not record that. The replica that started a later tick did
// not know, and says so in its record.
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
