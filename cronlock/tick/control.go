package tick

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// A pausing is one pause of a job.
type pausing struct {
	Job   string    `json:"job"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	Until time.Time `json:"until,omitzero"`
}

// A trigger asks for one run of a job.
type trigger struct {
	Job string    `json:"job"`
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
}

// Pause pauses the job on all replicas, until [Job.Resume]. Once it has returned nil, no replica starts a tick that it
// claims after that: neither one that falls due meanwhile, which is not made up for later either, nor one whose replica
// dies. Runs under way go on, and [Job.Trigger] and runs by hand start the job all the same. A job that is paused stays
// so, also through restarts of all replicas, as long as no quorum of nodes forgets it and not all replicas are away for
// four weeks.
//
// After an error that matches core.ErrUnavailable the job may be paused, or not: repeat it.
func (j *Job) Pause(ctx context.Context) error {
	return j.tell(ctx, "pause", func(s *state, now time.Time) bool {
		_, already := s.pause(j.name)
		if !already {
			s.Paused = append(s.Paused, pausing{Job: j.name, By: j.service.self, At: now})
		}
		return !already
	})
}

// Resume ends the pause of the job: from the next tick on it runs as ever. The errors are those of Pause.
func (j *Job) Resume(ctx context.Context) error {
	return j.tell(ctx, "resume", func(s *state, now time.Time) bool {
		p, paused := s.pause(j.name)
		if paused {
			p.Until = now
			s.Paused = slices.DeleteFunc(s.Paused, func(p pausing) bool { return p.Job == j.name })
			s.Resumed = append(s.Resumed, p)
		}
		return paused
	})
}

// Trigger has the job run once on whatever replica, beside its schedule, also while it is paused. It returns when that is
// recorded: this replica begins at once if it may, others hear of it within seconds, and a run that does not complete is
// run again, as the policy of the job allows. It waits for earlier runs, within the misfire grace. However often and on
// whatever replica it is called with the same id within a day, the job runs once; with an empty id, each time. An id is valid UTF-8 of at most
// 128 bytes.
//
// After an error that matches core.ErrUnavailable the job may run, or not: repeat it with the same id. Within a minute a
// service takes 50 triggers.
func (j *Job) Trigger(ctx context.Context, id string) error {
	if id == "" {
		id = rand.Text()
	}
	if len(id) > maxTriggerLen || !utf8.ValidString(id) { // in the record, others could count as the same
		return fmt.Errorf("cronlock: job %q: cannot trigger: %w: the id %q must be valid UTF-8 of at most %d bytes", j.name, core.ErrInvalid, id, maxTriggerLen)
	}
	full := false
	err := j.tell(ctx, "trigger", func(s *state, now time.Time) bool {
		if slices.ContainsFunc(s.Triggers, func(t trigger) bool { return t.Job == j.name && t.ID == id }) {
			return false
		}
		full = len(s.Triggers) == boardKeeps && now.Sub(s.Triggers[0].At) < time.Minute
		s.Triggers = append(s.Triggers, trigger{Job: j.name, ID: id, At: now})
		return !full
	})
	if err == nil && full {
		err = fmt.Errorf("cronlock: job %q: cannot trigger: there were %d triggers within a minute", j.name, boardKeeps)
	}
	if err == nil {
		j.service.heed(j.service.known())
	}
	return err
}

const maxTriggerLen = 128

// tell changes what the board says.
func (j *Job) tell(ctx context.Context, what string, edit func(s *state, now time.Time) bool) error {
	s := j.service
	err := core.ErrClosed
	if s.gate.Enter() {
		defer s.gate.Leave()
		err = s.change(ctx, func(to *state) bool { return edit(to, s.Now().UTC()) })
	}
	if err != nil {
		return fmt.Errorf("cronlock: job %q: cannot %s: %w", j.name, what, err)
	}
	return nil
}

// pause returns the pause of a job that goes on.
func (s *state) pause(job string) (pausing, bool) {
	i := slices.IndexFunc(s.Paused, func(p pausing) bool { return p.Job == job })
	if i < 0 {
		return pausing{}, false
	}
	return s.Paused[i], true
}

// pauses returns the pause for which a tick of a job does not run: one that goes on, or in which it fell due.
func (s *state) pauses(job string, t *tick) (pausing, bool) {
	if p, paused := s.pause(job); paused {
		return p, true
	}
	i := slices.IndexFunc(s.Resumed, func(p pausing) bool { return p.Job == job && !t.At.Before(p.At) && t.At.Before(p.Until) })
	if i < 0 {
		return pausing{}, false
	}
	return s.Resumed[i], true
}

// notPaused asks whether the job is paused, as who has the tick has to; one that falls into a pause is recorded as such.
func (r *Claim) notPaused() error {
	if r.tickLease == nil || r.tick.trigger != "" {
		return nil
	}
	b, err := r.job.service.read(r.term)
	if err != nil {
		return err
	}
	p, paused := b.pauses(r.job.name, &r.tick)
	if !paused {
		return nil
	}
	return errors.Join(fmt.Errorf("%w since %s, by %s", ErrPaused, stamp(p.At), p.By), r.settle(Paused))
}

// anyway reports whether a tick is to run unprotected that cannot be claimed: not one of a job that was paused when this
// replica last heard of it.
func (r *Claim) anyway(err error) bool {
	b := r.job.service.known()
	if _, paused := b.pauses(r.job.name, &r.tick); paused && r.tick.id != "" && r.tick.trigger == "" {
		return false
	}
	return r.job.policy.runAnyway && !errors.Is(err, ErrOverlap) && (outage(err) || errors.Is(err, ErrNotLeader) && r.job.service.cutOff())
}

// listen has this replica hear of triggers, and keeps the board.
func (s *Service) listen() {
	for first := true; first || pause.For(s.closing, s.look*3/4+mathrand.N(s.look/2)); first = false {
		if len(s.all()) == 0 {
			continue
		}
		b, err := s.read(s.closing)
		if err != nil {
			continue // there is a next time
		}
		if b.begun && b.page <= s.today() {
			_ = s.change(s.closing, func(*state) bool { return false }) // likewise
		}
		s.heed(b)
	}
}

// heed pursues what was triggered, once in each term in which this replica leads, if it must.
func (s *Service) heed(b board) {
	term, leads := s.term()
	if !leads {
		return
	}
	for _, j := range s.all() {
		for _, t := range j.triggered(b, term) {
			j.pursue(t) // beside the others
		}
	}
}

// triggered returns what this replica has not heard of yet in the term.
func (j *Job) triggered(b board, term uint64) (ticks []tick) {
	j.mu.Lock()
	defer j.mu.Unlock()
	heard := map[string]uint64{}
	for _, t := range b.Triggers {
		if t.Job != j.name {
			continue
		}
		heard[t.ID] = term
		if in, before := j.heard[t.ID]; !before || in != term {
			ticks = append(ticks, tick{Tick: Tick{At: t.At, Exact: true, Period: time.Minute}, id: "trigger/" + t.ID, shared: true, late: true, trigger: t.ID})
		}
	}
	j.heard = heard
	return ticks
}
