package main

import (
	"testing"
	"time"
)

func TestHandoffGoals(t *testing.T) {
	with := func(n int, d time.Duration) []histogram {
		hs := make([]histogram, len(handoffKinds))
		for range n {
			hs[0].add(d)
		}
		return hs
	}
	took := map[string][]histogram{
		lockkitOpen:   with(goalHandoffs, 400*time.Microsecond),
		"rueidislock": with(goalHandoffs, 300*time.Microsecond),
	}
	verdicts := func(n, kind int) (got []string) {
		for _, g := range handoffGoals(n, kind, took) {
			got = append(got, g.want+": "+g.verdict())
		}
		return got
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %q", what, got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %s, want %s", what, got[i], want[i])
			}
		}
	}
	check("slower than another", verdicts(1, 0), "≤ 500 µs: yes", "≤ 3.00 ms: yes", "≤ rueidislock: no")
	check("nothing", verdicts(1, 1), "≤ 500 µs: – (0 hand-offs)", "≤ 3.00 ms: – (0 hand-offs)", "≤ rueidislock: – (0 hand-offs)")
	delete(took, "rueidislock")
	took[lockkitOpen][0].add(time.Second)
	took[lockkitOpen][0].add(time.Second)
	check("two of a hundred", verdicts(3, 0), "≤ 500 µs: yes", "≤ 3.00 ms: no")
}
