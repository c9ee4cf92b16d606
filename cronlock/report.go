package cronlock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/callback"
)

// event tells the observer what happens to the job. Neither a look nor a run waits for the observer.
func (j *Job) event(ctx context.Context, kind core.EventKind) {
	if kind == "" {
		return
	}
	locker := j.service.locker
	callback.Of(locker).Post(&j.events, func() {
		locker.Event(ctx, core.Event{Source: "cronlock", Name: j.name, Kind: kind})
	})
}

// log writes a line about the job. Neither a look nor a run waits for the logger.
func (j *Job) log(level slog.Level, message string, attrs ...any) {
	locker := j.service.locker
	callback.Of(locker).Post(&j.logLines, func() {
		locker.Logger().With("job", j.name).Log(context.Background(), level, message, attrs...)
	})
}

// waitsForNewNodes reports whether nothing starts only because the nodes are new to this process and do not vote yet, though
// a quorum has answered. That is how each new cluster begins, and no outage.
func (s *Service) isWaitingForNewNodes(err error) bool {
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || !errors.Is(err, core.ErrUnavailable) || s.quorumGranted.Load() {
		return false
	}
	resting := 0
	for _, n := range op.Nodes {
		if n.Verdict == core.VerdictQuarantined {
			resting++
		}
	}
	return resting > len(op.Nodes)/2
}

// An outage is why nothing can start. It is logged when it begins, and again when another one begins after a run, or after
// an answer that nothing is to start here.
type outage struct {
	mu     sync.Mutex
	reason core.EventKind // the reason that was logged; empty if nothing is wrong
}

func (o *outage) report(j *Job, reason core.EventKind, refusal *Error) {
	if core.ClassOf(refusal.Err) == core.ClassCancelled || core.ClassOf(refusal.Err) == core.ClassClosed {
		return // the call was given up: nothing is known
	}
	if IsExpected(refusal) {
		o.clear()
		return
	}
	o.mu.Lock()
	before := o.reason
	o.reason = reason
	o.mu.Unlock()
	if before != reason {
		j.log(slog.LevelWarn, "cronlock: a tick cannot start", "err", refusal.Err) // a key is in the text of the refusal
	}
}

func (o *outage) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reason = ""
}

// A passing counts superseded ticks until they are logged.
type supersededCount struct {
	mu       sync.Mutex
	ticks    int
	loggedAt time.Time
}

// quietly is how long the next log line about superseded ticks of a job waits.
const supersededLogInterval = time.Hour

// supersedes tells of ticks that will never start because a later one does.
func (j *Job) reportSuperseded(ctx context.Context, ticks int) {
	for range ticks {
		j.event(ctx, EventSuperseded)
	}
	if n := j.superseded.add(ticks); n > 0 {
		j.log(slog.LevelWarn, "cronlock: ticks were superseded: they never start, because a later tick was due when the job could start", "ticks", n)
	}
}

// add returns how many ticks are to be logged now.
func (p *supersededCount) add(ticks int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks += ticks
	if p.ticks == 0 || !p.loggedAt.IsZero() && time.Since(p.loggedAt) < supersededLogInterval {
		return 0
	}
	n, p.ticks, p.loggedAt = p.ticks, 0, time.Now()
	return n
}
