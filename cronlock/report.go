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

// event reports an event of the job to the observer. Neither a poll nor a run waits for the observer. An empty kind is
// ignored.
func (j *Job) event(ctx context.Context, kind core.EventKind) {
	if kind == "" {
		return
	}

	locker := j.service.locker
	callback.BackgroundOf(locker).Post(&j.events, func() {
		locker.Event(ctx, core.Event{Source: "cronlock", Name: j.name, Kind: kind})
	})
}

// log logs a line about the job. Neither a poll nor a run waits for the logger.
func (j *Job) log(level slog.Level, message string, attrs ...any) {
	locker := j.service.locker
	callback.BackgroundOf(locker).Post(&j.logLines, func() {
		locker.Logger().With("job", j.name).Log(context.Background(), level, message, attrs...) //nolint:forbidigo // no caller waits for it
	})
}

// isWaitingForNewNodes reports whether err has only this cause: a majority of the nodes are in quarantine, and no
// quorum has granted anything to this process so far. Every new cluster begins like that, so it is no outage.
func (s *Service) isWaitingForNewNodes(err error) bool {
	if s.quorumGranted.Load() || !errors.Is(err, core.ErrUnavailable) {
		return false
	}
	op, isOpError := errors.AsType[*core.OpError](err)
	if !isOpError {
		return false
	}

	quarantined := 0
	for _, n := range op.Nodes {
		if n.Verdict == core.VerdictQuarantined {
			quarantined++
		}
	}
	return quarantined > len(op.Nodes)/2
}

// An outage is a time in which ticks cannot start for one reason. It is logged once, when it begins. It ends with a
// run, or with an answer that nothing needs to start on this replica.
type outage struct {
	mu     sync.Mutex     // guards reason
	reason core.EventKind // reason that was logged; empty if there is no outage
}

// report logs the refusal if it begins an outage, and ends the outage if the refusal is expected.
func (o *outage) report(j *Job, reason core.EventKind, refusal *Error) {
	class := core.ClassOf(refusal.Err)
	if class == core.ClassCancelled || class == core.ClassClosed {
		// A call that was given up shows nothing about the nodes.
		return
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
		// The inner error is logged with a hash of the key; the text of the refusal contains the key.
		j.log(slog.LevelWarn, "cronlock: a tick cannot start", "err", refusal.Err)
	}
}

// clear ends the outage, if there is one.
func (o *outage) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reason = ""
}

// A supersededCount counts superseded ticks until they are logged.
type supersededCount struct {
	mu       sync.Mutex // guards all fields below
	ticks    int        // superseded since the last log line
	loggedAt time.Time  // zero if nothing was logged yet
}

// supersededLogInterval is the shortest time between two log lines about superseded ticks of a job.
const supersededLogInterval = time.Hour

// reportSuperseded reports a number of ticks that will never start because a later one does.
func (j *Job) reportSuperseded(ctx context.Context, ticks int) {
	for range ticks {
		j.event(ctx, EventSuperseded)
	}

	n := j.superseded.add(ticks)
	if n > 0 {
		j.log(slog.LevelWarn,
			"cronlock: ticks were superseded: they never start, because a later tick was due when the job could start",
			"ticks", n)
	}
}

// add counts ticks, and returns how many must be logged now: 0, or all that were not logged yet.
func (s *supersededCount) add(ticks int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ticks += ticks
	isLogged := !s.loggedAt.IsZero() && time.Since(s.loggedAt) < supersededLogInterval
	if s.ticks == 0 || isLogged {
		return 0
	}

	n = s.ticks
	s.ticks = 0
	s.loggedAt = time.Now()
	return n
}
