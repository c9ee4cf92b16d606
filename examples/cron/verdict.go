package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An outcome is what became of a tick.
type outcome string

const (
	once    outcome = "run once"
	again   outcome = "run again" // because the first run died with its replica, or was stopped with it
	skipped outcome = "skipped"   // an earlier run went on
	lost    outcome = "lost"      // died with its replica, and the job is AtMostOnce
	wrong   outcome = "WRONG"
	open    outcome = "open" // the demo ended too soon to tell
)

// A verdict is about one tick of a job.
type verdict struct {
	outcome
	runs []run
	text string
}

// settling is how long after its instant a tick may start at the latest, on a busy machine. Ticks that the
// demo does not outlast by that may run no more.
const settling = 1500 * time.Millisecond

// A judge knows what the policy of a job allows. It sees the runs, and not the locks.
type judge struct {
	job
	all        []run
	kills      []event
	begin, end time.Time // when all replicas were up, but for those that the demo took away
}

func (r *record) judge(j job, begin, end time.Time) *judge {
	return &judge{j, r.runs(j.name), r.these(isKilled), begin, end}
}

// ticks returns the instants at which the job was due.
func (j *judge) ticks() []time.Time {
	var ticks []time.Time
	for t := j.begin.Truncate(j.period).Add(j.period); t.Before(j.end); t = t.Add(j.period) {
		ticks = append(ticks, t)
	}
	return ticks
}

func (j *judge) verdict(tick time.Time) verdict {
	var runs []run
	var who []string
	done := 0
	for _, r := range j.all {
		if !r.Tick.Equal(tick) {
			continue
		}
		runs = append(runs, r)
		switch {
		case r.killed:
			who = append(who, r.Replica+" (killed)")
		case r.failed != "":
			who = append(who, r.Replica+" (stopped)")
			if j.attempts == 1 {
				done++ // as far as it will ever be
			}
		default:
			who = append(who, r.Replica)
			done++
		}
	}
	v := verdict{wrong, runs, strings.Join(who, ", then ")}
	switch {
	case done > 1 || len(runs) > j.attempts:
		v.text = strings.Join(who, ", ")
	case len(runs) > 1 && done == 1:
		v.outcome = again
	case done == 1:
		v.outcome = once
	case len(runs) == 1 && j.attempts == 1:
		v.outcome, v.text = lost, v.text+": lost"
	case len(runs) == 0 && j.busy(tick) != "":
		v.outcome, v.text = skipped, j.busy(tick)+" goes on"
	case len(runs) == 0 && j.attempts == 1 && j.killedAt(tick):
		v.outcome, v.text = lost, "lost in the kill"
	case tick.After(j.end.Add(-settling)):
		v.outcome = open
	case len(runs) == 0:
		v.text = "nobody"
	}
	return v
}

// busy returns what kept the tick from starting: an earlier run of the job, or the lease of one that died.
func (j *judge) busy(tick time.Time) string {
	for _, r := range slices.Backward(j.all) {
		what, until := "'s run", r.end.Add(200*time.Millisecond) // to record the end
		if r.killed {
			what, until = "'s lease", r.end.Add(ttl+settling)
		}
		if r.Tick.Before(tick) && (r.end.IsZero() || until.After(tick)) {
			return r.Replica + what
		}
	}
	return ""
}

// killedAt reports whether a replica died when it may have claimed the tick and not come to say so.
func (j *judge) killedAt(tick time.Time) bool {
	return slices.ContainsFunc(j.kills, func(k event) bool {
		return k.At.After(tick) && k.At.Before(tick.Add(time.Second))
	})
}

// check returns an error unless each tick, and the job as a whole, went as the policy wants.
func (j *judge) check() error {
	var faults []string
	fault := func(n int, what, first string) {
		if n > 0 {
			faults = append(faults, fmt.Sprintf("%d %s, first %s", n, what, first))
		}
	}
	var wrongs, overlaps, tokens int
	var tick, overlap, token string
	for _, t := range slices.Backward(j.ticks()) {
		if j.verdict(t).outcome == wrong {
			wrongs, tick = wrongs+1, clockTime(t)
		}
	}
	for i := len(j.all) - 1; i > 0; i-- {
		before, r := j.all[i-1], j.all[i]
		if before.end.After(r.At) {
			overlaps, overlap = overlaps+1, clockTime(r.Tick)
		}
		if r.Token != 0 && r.Token <= before.Token {
			tokens, token = tokens+1, clockTime(r.Tick)
		}
	}
	fault(wrongs, "ticks ran too often or not at all", tick)
	fault(overlaps, "runs overlapped with the one before", overlap)
	fault(tokens, "runs had a token that was not greater", token)
	if faults == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", j.name, strings.Join(faults, "; "))
}
