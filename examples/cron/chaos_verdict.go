package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	lostClaim outcome = "lost at the start" // its replica died when it had claimed the tick
	missed    outcome = "missed"            // leaders were catching up for longer than the misfire grace
	usedUp    outcome = "used up"           // all attempts were started, and none completed
)

// promptly is how long what takes moments may last on a busy machine: to claim a tick, or to record an end.
const promptly = 500 * time.Millisecond

// A chaosJudge knows what is promised of a job whose replicas are killed and stopped. It sees the runs by the clock of the
// machine, which is the nodes' too. What cronlock says is only believed of a tick that was skipped, and only if there was
// a run then.
type chaosJudge struct {
	*judge
	led    bool    // by an elector
	faults []event // kills and stops
	skips  []event // refusals because of a run
}

func newChaosJudge(rec *record, j job, led bool, begin, end time.Time) *chaosJudge {
	return &chaosJudge{rec.judge(j, begin, end), led, rec.these(isKilled, isStopped), rec.of(j, isOverlap)}
}

// struck returns when a replica was first killed or stopped between two instants.
func (j *chaosJudge) struck(replica string, from, to time.Time) (time.Time, bool) {
	i := slices.IndexFunc(j.faults, func(f event) bool {
		return f.Replica == replica && !f.At.Before(from) && !f.At.After(to)
	})
	if i < 0 {
		return time.Time{}, false
	}
	return j.faults[i].At, true
}

// alone is until when a run must be the only one: its end; that of a replica that is stopped meanwhile has lost its lease
// when it goes on, and is told so.
func (j *chaosJudge) alone(r run) time.Time {
	if stop, ok := j.struck(r.Replica, r.At, r.end); ok {
		return stop
	}
	return r.end
}

// completed reports whether it was left to cronlock to record that a run has completed.
func (j *chaosJudge) completed(r run) bool {
	if r.killed || r.end.IsZero() || r.failed != "" {
		return false
	}
	_, ok := j.struck(r.Replica, r.At, r.end.Add(2*promptly))
	return !ok
}

func (j *chaosJudge) verdict(tick time.Time) verdict {
	var v verdict
	var who []string
	done, finished := 0, 0
	for _, r := range j.all {
		if !r.Tick.Equal(tick) {
			continue
		}
		if done > 0 {
			v.text = "started again after it was done: "
		}
		v.runs = append(v.runs, r)
		if j.completed(r) {
			done++
		}
		if !r.killed && r.failed == "" {
			finished++
		}
		who = append(who, fmt.Sprintf("%s attempt %d %+.2fs to %+.2fs killed=%v %s", r.Replica, r.Attempt,
			r.At.Sub(tick).Seconds(), r.end.Sub(tick).Seconds(), r.killed, r.failed))
	}
	n := len(v.runs)
	switch {
	case v.text != "":
	case n > j.attempts:
		v.text = "started too often: "
	case n > 0 && v.runs[0].Attempt == 1 && v.runs[0].At.Sub(tick) > j.grace+promptly:
		v.text = "started after the grace: "
	case n > 0:
		v.outcome, v.text = j.started(n, finished)
	default:
		v.outcome, v.text = j.notStarted(tick)
	}
	if v.text != "" {
		v.outcome = wrong
	}
	v.text += strings.Join(who, ", ")
	return v
}

// started is what became of a tick that was started n times.
func (j *chaosJudge) started(n, finished int) (outcome, string) {
	switch {
	case finished > 0 && n > 1:
		return again, ""
	case finished > 0:
		return once, ""
	case n < j.attempts:
		return wrong, "not completed: "
	case n == 1:
		return lost, ""
	}
	return usedUp, ""
}

func (j *chaosJudge) notStarted(tick time.Time) (outcome, string) {
	switch {
	case j.skippedAt(tick):
		return skipped, ""
	case j.attempts == 1 && j.led && j.missed(tick):
		return missed, ""
	case j.attempts == 1 && j.lostInClaim(tick):
		return lostClaim, ""
	}
	return wrong, "nobody started it"
}

// skippedAt reports whether somebody skipped the tick when it was due, because of a run that there was.
func (j *chaosJudge) skippedAt(tick time.Time) bool {
	return slices.ContainsFunc(j.skips, func(s event) bool {
		late := s.At.Sub(tick)
		return s.Tick.Equal(tick) && late > -promptly/10 && late < 4*promptly && j.taken(s.At)
	})
}

// taken reports whether the job was taken: from the claim of a run to the record of its end, or until the lease of a
// replica has ended that was killed or stopped, perhaps before it could say what it was about to run.
func (j *chaosJudge) taken(at time.Time) bool {
	return slices.ContainsFunc(j.all, func(r run) bool {
		return at.After(r.At.Add(-promptly)) && at.Before(r.end.Add(promptly))
	}) || slices.ContainsFunc(j.faults, func(f event) bool {
		return at.After(f.At) && at.Before(f.At.Add(ttl+2*promptly))
	})
}

// lostInClaim reports whether a replica was killed or stopped when it may have claimed the tick and not come to say so:
// at its instant, later by as much as that replica's clock is behind, or when it was catching up and had just ended the run before.
func (j *chaosJudge) lostInClaim(tick time.Time) bool {
	return slices.ContainsFunc(j.faults, func(f event) bool {
		i := slices.IndexFunc(chaosMembers, func(m member) bool { return m.name == f.Replica })
		late := f.At.Sub(tick.Add(max(0, -chaosMembers[i].ahead)))
		return late > -promptly/10 && late < promptly || late > 0 && late < j.grace && slices.ContainsFunc(j.all, func(r run) bool {
			return r.Replica == f.Replica && !r.killed && r.end.Before(f.At) && r.end.After(f.At.Add(-promptly))
		})
	})
}

// missed reports whether the job was never free for long within the grace of the tick. It must be one whose runs take longer
// than its period: others catch up.
func (j *chaosJudge) missed(tick time.Time) bool {
	if j.work <= j.period {
		return false
	}
	free := time.Duration(0)
	for t := tick; t.Before(tick.Add(j.grace)) && free < 4*promptly; t = t.Add(promptly / 5) {
		free += promptly / 5
		if j.taken(t) {
			free = 0
		}
	}
	return free < 4*promptly
}
