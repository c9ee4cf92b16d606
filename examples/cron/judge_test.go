package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// at returns the instant that is s seconds after the beginning of the story.
func at(s float64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

// A story is the history of a job that is due every second.
type story []event

// run adds the start of a run, and its end unless to is 0. Later starts have greater tokens.
func (s story) run(replica string, tick float64, attempt int, from, to float64) story {
	e := event{Replica: replica, Job: "job", Kind: runStarts, At: at(from), Tick: at(tick), Attempt: attempt, Token: uint64(from * 1000)}
	s = append(slices.Clone(s), e)
	if to > 0 {
		e.Kind, e.At = runEnds, at(to)
		s = append(s, e)
	}
	return s
}

// tell adds an event of a replica.
func (s story) tell(kind, replica string, when float64) story {
	return append(slices.Clone(s), event{Replica: replica, Job: "job", Kind: kind, At: at(when)})
}

// fail makes the last run end with an error. Its context ended earlier than the run, by overdue.
func (s story) fail(overdue time.Duration) story {
	s = slices.Clone(s)
	last := &s[len(s)-1]
	last.Text, last.Overdue = "context canceled", overdue
	return s
}

// ticks adds a short run of the replica for each tick, 10 ms after its instant.
func (s story) ticks(replica string, from, to int) story {
	for t := from; t <= to; t++ {
		s = s.run(replica, float64(t), 1, float64(t)+0.01, float64(t)+0.02)
	}
	return s
}

func TestJudge(t *testing.T) {
	t.Parallel()
	fine := story(nil).ticks("a", 1, 20)
	killed := story(nil).ticks("b", 1, 4).run("a", 5, 1, 5.01, 0).tell(isKilled, "a", 5.5)
	claimed := story(nil).ticks("b", 1, 4).tell(isAsking, "a", 5.01).tell(isKilled, "a", 5.5)
	for name, test := range map[string]struct {
		story
		attempts int
		elector  bool
		want     []string // the violations; empty if the rules were followed
	}{
		"all is well":          {story: fine, attempts: 1},
		"a tick is superseded": {story: story(nil).run("a", 1, 1, 1, 2.5).run("a", 2, 1, 2.6, 4.1).ticks("b", 5, 20), attempts: 1},

		"a second start": {story: story(nil).ticks("a", 1, 5).run("b", 5, 2, 5.5, 5.6).ticks("a", 6, 20), attempts: 1,
			want: []string{"tick {5} was started 2 times"}},
		"a second start of three": {story: killed.run("b", 5, 2, 10, 10.1).ticks("b", 11, 20), attempts: 3},
		"a fourth start of three": {story: story(nil).run("a", 1, 1, 1, 1.1).fail(0).run("a", 1, 2, 1.2, 1.3).fail(0).run("a", 1, 3, 1.4, 1.5).fail(0).
			run("a", 1, 4, 1.6, 1.7).ticks("a", 2, 20), attempts: 3, want: []string{"tick {1} was started 4 times"}},

		"a second start after the first was lost with a node": {story: story(nil).ticks("a", 1, 4).run("a", 5, 1, 5.01, 0).tell(isKilled, "a", 5.1).
			tell(isEmptied, "", 5.2).run("b", 5, 1, 9.3, 9.4).ticks("b", 10, 20), attempts: 1},
		"a second start, and the first was on all nodes": {story: story(nil).ticks("a", 1, 4).run("a", 5, 1, 5.01, 0).tell(isKilled, "a", 5.5).
			tell(isEmptied, "", 5.6).run("b", 5, 1, 9.3, 9.4).ticks("b", 10, 20), attempts: 1, want: []string{"tick {5} was started 2 times"}},
		"an unfinished tick whose start was lost with a node": {story: story(nil).ticks("a", 1, 4).run("a", 5, 1, 5.01, 0).tell(isKilled, "a", 5.1).
			tell(isEmptied, "", 5.2).ticks("b", 9, 20), attempts: 3},

		"a run beside another": {story: story(nil).run("a", 1, 1, 1, 2.5).run("b", 2, 1, 2.1, 2.2).ticks("b", 3, 20), attempts: 1,
			want: []string{"tick {2}, attempt 1 on b started beside tick {1}, attempt 1 on a"}},
		"a run beside one that goes on": {story: story(nil).run("a", 1, 1, 1, 0).ticks("b", 2, 2), attempts: 1,
			want: []string{"started beside tick {1}"}},
		"a run beside one whose context had ended": {story: story(nil).ticks("b", 1, 2).run("a", 3, 1, 3, 9).fail(2*time.Second).ticks("b", 8, 20), attempts: 1},
		"a run beside one whose context ended later": {story: story(nil).ticks("b", 1, 2).run("a", 3, 1, 3, 9).fail(500*time.Millisecond).ticks("b", 8, 20), attempts: 1,
			want: []string{"tick {8}, attempt 1 on b started beside tick {3}, attempt 1 on a"}},
		"a run beside one that is paused and killed": {story: story(nil).ticks("b", 1, 2).run("a", 3, 1, 3, 0).tell(isStopped, "a", 3.5).ticks("b", 8, 20).
			tell(isKilled, "a", 9.5), attempts: 1},
		"a run beside one that is killed in its pause": {story: story(nil).ticks("b", 1, 2).run("a", 3, 1, 3, 0).tell(isStopped, "a", 3.5).ticks("b", 6, 6).
			tell(isKilled, "a", 6.5).ticks("b", 7, 20), attempts: 1},
		"a run beside one that is paused for a moment": {story: story(nil).ticks("b", 1, 2).run("a", 3, 1, 3, 0).tell(isStopped, "a", 3.5).tell(goesOn, "a", 4.5).
			ticks("b", 8, 20).tell(isKilled, "a", 9.5), attempts: 1, want: []string{"tick {8}, attempt 1 on b started beside tick {3}, attempt 1 on a", "tick {9}, attempt 1 on b started beside tick {3}, attempt 1 on a"}},
		"a smaller token": {story: append(story(nil).ticks("a", 1, 2), append(story(nil).ticks("a", 4, 20),
			event{Replica: "b", Job: "job", Kind: runStarts, At: at(3.01), Tick: at(3), Attempt: 1, Token: 2},
			event{Replica: "b", Job: "job", Kind: runEnds, At: at(3.02), Tick: at(3), Attempt: 1})...), attempts: 1,
			want: []string{"tick {3}, attempt 1 on b has token 2 after 200"}},

		"forgotten after a kill":     {story: killed.ticks("b", 10, 20), attempts: 3, want: []string{"was forgotten after 1 of 3 starts"}},
		"forgotten after a shutdown": {story: story(nil).run("a", 1, 1, 1, 1.5).fail(0).ticks("b", 2, 20), attempts: 3, want: []string{"was forgotten after 1 of 3 starts"}},
		"started again too late":     {story: killed.ticks("b", 10, 12).run("b", 5, 2, 12.5, 12.6).ticks("b", 13, 20), attempts: 3, want: []string{"tick {5}, attempt 2 on b started after tick {12}"}},
		"lost with one start":        {story: killed.ticks("b", 10, 20), attempts: 1},
		"its starts are used up": {story: story(nil).run("a", 1, 1, 1, 1.1).fail(0).run("a", 1, 2, 1.2, 1.3).fail(0).run("a", 1, 3, 1.4, 1.5).fail(0).ticks("a", 2, 20),
			attempts: 3},
		"two starts may be hidden by kills": {story: killed.tell(isAsking, "b", 9.6).tell(isKilled, "b", 9.7).tell(isAsking, "c", 13.8).
			tell(isStopped, "c", 13.9).ticks("d", 18, 20), attempts: 3},
		"one start may be hidden by a kill": {story: killed.tell(isAsking, "b", 9.6).tell(isKilled, "b", 9.7).ticks("d", 14, 20), attempts: 3,
			want: []string{"was forgotten after 1 of 3 starts"}},

		"a moment early": {story: story(nil).ticks("a", 1, 4).run("a", 5, 1, 4.96, 4.97).ticks("a", 6, 20), attempts: 1},
		"early":          {story: story(nil).ticks("a", 1, 4).run("a", 5, 1, 4.9, 4.91).ticks("a", 6, 20), attempts: 1, want: []string{"tick {5}, attempt 1 on a started 100ms early"}},
		"out of order":   {story: story(nil).ticks("a", 1, 3).ticks("a", 5, 5).run("b", 4, 1, 5.5, 5.6).ticks("a", 6, 20), attempts: 1, want: []string{"tick {4}, attempt 1 on b started after tick {5}"}},

		"nothing for too long":          {story: story(nil).ticks("a", 1, 5).ticks("a", 13, 20), attempts: 1, want: []string{"nothing was started for 7.99"}},
		"nothing from the beginning on": {story: story(nil).ticks("a", 9, 20), attempts: 1, want: []string{"nothing was started for 9.01"}},
		"nothing to the end":            {story: story(nil).ticks("a", 1, 10), attempts: 1, want: []string{"nothing was started for 9.98"}},
		"the holder was killed":         {story: claimed.ticks("b", 12, 20), attempts: 1},
		"the holder was paused":         {story: story(nil).ticks("b", 1, 4).tell(isAsking, "a", 5.01).tell(isStopped, "a", 5.5).ticks("b", 12, 20), attempts: 1},
		"it was killed long before":     {story: claimed.ticks("b", 13, 20), attempts: 1, want: []string{"nothing was started for 7.51"}},
		"two holders were killed":       {story: claimed.tell(isAsking, "b", 9.8).tell(isKilled, "b", 9.9).ticks("c", 16, 20), attempts: 1},
		"another was killed":            {story: story(nil).ticks("b", 1, 4).tell(isAsking, "a", 4.01).tell(isFree, "a", 4.02).tell(isKilled, "a", 9.5).ticks("b", 13, 20), attempts: 1, want: []string{"nothing was started for 8.99"}},
		"one of two that asked has it": {story: story(nil).ticks("b", 1, 4).tell(isAsking, "a", 5.01).tell(isAsking, "a", 5.02).tell(isFree, "a", 5.03).
			tell(isKilled, "a", 5.5).ticks("b", 12, 20), attempts: 1},
		"the leader was killed": {story: story(nil).tell(isElected, "a", 0.1).ticks("a", 1, 4).tell(isKilled, "a", 5.5).tell(isElected, "b", 10).ticks("b", 12, 20), attempts: 1, elector: true},
		"a follower was killed": {story: story(nil).tell(isElected, "b", 0.1).ticks("b", 1, 4).tell(isKilled, "a", 5.5).ticks("b", 12, 20), attempts: 1, elector: true,
			want: []string{"nothing was started for 7.99"}},
		"killed while there was no leader": {story: story(nil).tell(isElected, "b", 0.1).ticks("b", 1, 4).tell(isDeposed, "b", 5).tell(isKilled, "a", 5.5).ticks("b", 12, 20), attempts: 1, elector: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJudge(test.story, job{name: "job", period: time.Second, attempts: test.attempts}, mode{chaos: true, elector: test.elector}, at(0), at(20))
			found := j.violations()
			if len(found) != len(test.want) {
				t.Fatalf("found %q, want %q", found, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(found[i], told(want)) {
					t.Errorf("found %q, want %q", found[i], want)
				}
			}
			if err := j.check(); (err != nil) != (len(test.want) > 0) {
				t.Errorf("the verdict is %v", err)
			}
		})
	}
}

var inBraces = regexp.MustCompile(`\{(\d+)\}`)

// told replaces {5} in a text with the time of the fifth second of the story.
func told(text string) string {
	return inBraces.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.ParseFloat(strings.Trim(s, "{}"), 64)
		return clockTime(at(n))
	})
}
