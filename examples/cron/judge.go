package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// early is by how much a run may start before its tick by the nodes' clocks, which are this machine's.
	early = 50 * time.Millisecond
	// margin is how long a job may be without a start beyond the TTL and its period.
	margin = 2 * time.Second
	// remembered is how many ticks back an unfinished one is started again.
	remembered = 100
	// reaching is how long the record of a start may be on a bare quorum of nodes, before it is on all of them.
	reaching = 250 * time.Millisecond
)

// A judge knows the rules that the runs of a job must follow. It sees what processes did, and does not ask the nodes. Of
// two things it must be told by them: when they may have had the lease of the job, and who led.
type judge struct {
	job
	all        []run
	hits       []event       // kills, pauses and releases that may leave the lease, or the leadership, with nobody for as long as the TTL
	hidden     []event       // those of them that may hide a start: it was recorded, and the process could not say so
	struck     []event       // all kills and pauses
	emptied    []event       // nodes
	bound      time.Duration // for how long a job may be without a start
	begin, end time.Time     // while replicas were up
}

// newJudge takes all events.
func newJudge(events []event, j job, m mode, begin, end time.Time) *judge {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) }) // of different processes
	o := &judge{job: j, all: runs(events, j.name, m.ttl()), bound: m.ttl() + margin + j.period, begin: begin, end: end}
	has, leader := map[string]int{}, ""
	for _, e := range events {
		switch e.Kind {
		case isKilled, isStopped:
			o.struck = append(o.struck, e)
		case isEmptied:
			o.emptied = append(o.emptied, e)
		}
		o.hear(e, has, m.elector && (leader == e.Replica || leader == ""))
		leader = leads(leader, e)
	}
	return o
}

// hear keeps hits. has is how often each process has asked for the lease and may have it; it may ask while it has it.
func (j *judge) hear(e event, has map[string]int, leads bool) {
	mine := e.Job == j.name
	switch {
	case e.Kind == isAsking && mine:
		has[e.Replica]++
	case e.Kind == isFree && mine:
		if e.Text != "" {
			j.hit(e, has[e.Replica] > 0)
		}
		has[e.Replica] = max(0, has[e.Replica]-1)
	case (e.Kind == isKilled || e.Kind == isStopped) && (has[e.Replica] > 0 || leads):
		j.hit(e, has[e.Replica] > 0)
	}
	if e.Kind == isKilled {
		has[e.Replica] = 0
	}
}

// leads returns who leads after an event; "" is nobody.
func leads(leader string, e event) string {
	switch {
	case e.Kind == isElected:
		return e.Replica
	case leader == e.Replica && (e.Kind == isKilled || e.Kind == isStopped || e.Kind == isDeposed):
		return ""
	}
	return leader
}

func (j *judge) hit(e event, has bool) {
	j.hits = append(j.hits, e)
	if has && !slices.ContainsFunc(j.all, func(r run) bool { // none of its runs was going on
		return r.Replica == e.Replica && !r.At.After(e.At) && (r.end.IsZero() || !r.end.Before(e.At))
	}) {
		j.hidden = append(j.hidden, e)
	}
}

// lost reports whether the nodes may have lost the record of a start by so long: its replica was struck before it could
// write it to more than a bare quorum of nodes, and one of these lost its memory. That is the limit of what core promises.
func (j *judge) lost(r run, by time.Time) bool {
	soon, early := r.At.Add(reaching), r.At.Add(-reaching)
	return slices.ContainsFunc(j.struck, func(e event) bool {
		return e.Replica == r.Replica && e.At.After(r.At) && e.At.Before(soon)
	}) && slices.ContainsFunc(j.emptied, func(e event) bool { return e.At.After(early) && e.At.Before(by) })
}

// violations returns where the rules were not followed.
func (j *judge) violations() []string {
	gaps, _ := j.gaps()
	return slices.Concat(j.tooMany(), j.overlaps(), j.forgotten(), j.tooEarly(), j.disorder(), gaps)
}

// tooMany: a tick is started at most so many times.
func (j *judge) tooMany() (found []string) {
	for _, tick := range j.started() {
		of, n := j.of(tick), 0
		for i, r := range of {
			if i+1 == len(of) || !j.lost(r, of[i+1].At) {
				n++
			}
		}
		if n > j.attempts {
			found = append(found, fmt.Sprintf("tick %s was started %d times", clockTime(tick), n))
		}
	}
	return found
}

// overlaps: no two runs go on at once whose contexts have not ended, and the tokens of runs grow.
func (j *judge) overlaps() (found []string) {
	for i, r := range j.all {
		for _, before := range j.all[:i] {
			if before.alone.IsZero() || before.alone.After(r.At) {
				found = append(found, fmt.Sprintf("%s started beside %s", r.text(), before.text()))
			}
		}
		if i > 0 && r.Token <= j.all[i-1].Token {
			found = append(found, fmt.Sprintf("%s has token %d after %d", r.text(), r.Token, j.all[i-1].Token))
		}
	}
	return found
}

// forgotten: a tick that was started and not completed is started again, while starts are left and it is among the latest.
func (j *judge) forgotten() (found []string) {
	for _, tick := range j.started() {
		of := j.of(tick)
		last := of[len(of)-1]
		starts := len(of)
		if slices.ContainsFunc(of, run.completed) || last.end.IsZero() {
			continue
		}
		next := j.end // what came instead
		if i := slices.IndexFunc(j.all, func(r run) bool { return r.At.After(last.At) && r.Tick.After(tick) }); i >= 0 {
			next = j.all[i].At
			if j.all[i].Tick.Sub(tick) >= remembered*j.period {
				continue
			}
		} else if last.end.Add(j.bound).After(j.end) {
			continue // the end has come too soon to tell
		}
		for _, h := range j.hidden {
			if h.At.After(last.end) && h.At.Before(next) {
				starts++
			}
		}
		if starts < j.attempts && !j.lost(last, next) {
			found = append(found, fmt.Sprintf("%s was not completed, and was forgotten after %d of %d starts", last.text(), len(of), j.attempts))
		}
	}
	return found
}

// tooEarly: a tick is due by the nodes' clocks.
func (j *judge) tooEarly() (found []string) {
	for _, r := range j.all {
		if ahead := r.Tick.Sub(r.At); ahead > early {
			found = append(found, fmt.Sprintf("%s started %v early", r.text(), ahead))
		}
	}
	return found
}

// disorder: ticks are started in their order, and again before any later one.
func (j *judge) disorder() (found []string) {
	var latest time.Time
	for _, r := range j.all {
		if r.Tick.Before(latest) {
			found = append(found, fmt.Sprintf("%s started after tick %s", r.text(), clockTime(latest)))
			continue
		}
		latest = r.Tick
	}
	return found
}

// gaps: a job is not without a start for long, since its last run ended or since its holder or the leader was hit. It also
// returns the longest time without one.
func (j *judge) gaps() (found []string, longest time.Duration) {
	since := j.begin
	check := func(until time.Time) {
		for _, h := range j.hits {
			if h.At.Before(until) && h.At.After(since) {
				if h.At.Sub(since) > j.bound {
					break // it came too late to be an excuse
				}
				since = h.At
			}
		}
		d := until.Sub(since)
		longest = max(longest, d)
		if d > j.bound {
			found = append(found, fmt.Sprintf("nothing was started for %v before %s, although a replica was well since %s", d, clockTime(until), clockTime(since)))
		}
	}
	for _, r := range j.all {
		if r.At.After(j.end) || r.At.Before(j.begin) {
			continue
		}
		check(r.At)
		since = r.At
		switch {
		case r.end.IsZero():
			return found, longest // it goes on
		case r.end.After(since):
			since = r.end
		}
	}
	check(j.end)
	return found, longest
}

// started returns the ticks that were started, in the order of their first starts.
func (j *judge) started() (ticks []time.Time) {
	seen := map[int64]bool{}
	for _, r := range j.all {
		if key := r.Tick.UnixNano(); !seen[key] {
			seen[key] = true
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// of returns the runs of a tick.
func (j *judge) of(tick time.Time) (runs []run) {
	for _, r := range j.all {
		if r.Tick.Equal(tick) {
			runs = append(runs, r)
		}
	}
	return runs
}

// ticks returns the instants at which the job was due.
func (j *judge) ticks() (ticks []time.Time) {
	for t := j.begin.Truncate(j.period).Add(j.period); t.Before(j.end); t = t.Add(j.period) {
		ticks = append(ticks, t)
	}
	return ticks
}

func (r run) text() string {
	return fmt.Sprintf("tick %s, attempt %d on %s", clockTime(r.Tick), r.Attempt, r.Replica)
}

// check returns an error unless the rules were followed.
func (j *judge) check() error {
	found := j.violations()
	if more := len(found) - 5; more > 0 {
		found = append(found[:5], fmt.Sprintf("and %d more", more))
	}
	if len(found) > 0 {
		return fmt.Errorf("%s: %s", j.name, strings.Join(found, "\n"+j.name+": "))
	}
	return nil
}
