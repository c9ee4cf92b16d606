package queuelock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Who is given back comes after those who were before it and are not back, by the time that they take; and however many
// there are, what is remembered of them is bounded, and is forgotten when they are back.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := absent{back: map[string]map[string]time.Time{}}
		var p pace
		p.note(time.Second)
		send := func(task string, inPlace int) time.Duration {
			return a.send("k", task, inPlace, &p, 500*time.Millisecond)
		}
		for i, want := range []time.Duration{2500, 3500, 4500} { // two in place, and the holder
			if got := send(fmt.Sprint(i), 2); got != want*time.Millisecond {
				t.Errorf("task %d is away for %v", i, got)
			}
		}
		a.returned([]string{"1", "k"})
		if got := send("1", 0); got != 2500*time.Millisecond { // the holder, 0 and 2
			t.Errorf("a task that came back is away for %v", got)
		}
		time.Sleep(time.Minute)
		if got := send("0", 0); got != 500*time.Millisecond {
			t.Errorf("when all are due, it is away for %v", got)
		}
		for i := range 2 * maxAbsent {
			if got := a.send(fmt.Sprint(i%3), fmt.Sprint(i), 0, &p, 0); got > longestAway {
				t.Fatalf("away for %v", got)
			}
		}
		if a.total != maxAbsent {
			t.Errorf("%d are remembered", a.total)
		}
		time.Sleep(longestAway + time.Second)
		for i := range 20 { // when there is no room
			send(fmt.Sprint("new", i), 0)
		}
		if a.total != 20 || len(a.back) != 1 {
			t.Errorf("%d are remembered, of %d keys", a.total, len(a.back))
		}
	})
}
