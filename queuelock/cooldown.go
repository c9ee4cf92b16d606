package queuelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Cooldown returns an error by which a handler has its task delivered again after d, as when what it calls asks it to come
// back later (status 429): no retry is counted and no worker is held, and nobody is given the key (WithKey) before d has
// passed, whatever task, route or call it is for, with the exceptions of [core.Cooldown]. The handler's error may wrap it.
// d is at most 24h; a longer or negative one fails the task like any other error. On its last attempt, asynq archives the task, with EventArchived.
func Cooldown(d time.Duration) error { return &cooldownError{d} }

type cooldownError struct{ d time.Duration }

func (e *cooldownError) Error() string {
	return fmt.Sprintf("queuelock: the handler returned Cooldown(%v)", e.d)
}

// cool ends the leases of a handler that returned Cooldown, and returns what asynq is told.
func (d *delivery) cool(ctx context.Context, held leases, err error, rest time.Duration) error {
	if held[1] == nil { // the task rests by itself
		held.release(ctx)
	} else {
		if held[1].Release(ctx, core.Cooldown(rest)) == nil {
			d.wiring.rest(d.keys[1], rest)
		}
		held[0].Release(ctx, core.Cooldown(rest)) // for as long, so that no delivery of the task takes its own rest for a conflict
	}
	if d.last {
		return d.archive(ctx, "queuelock: a handler returned Cooldown on the last attempt of its task: asynq archives it, from where it can be run (asynq task run); a larger MaxRetry avoids this", err)
	}
	d.event(ctx, EventCooldown)
	return back(shortlyAfter(rest), true, err)
}

// asksForRest returns the time of the Cooldown in err, if there is one that is fit.
func asksForRest(err error) (time.Duration, error, bool) {
	e, ok := errors.AsType[*cooldownError](err)
	if !ok {
		return 0, err, false
	}
	if e.d < 0 || e.d > 24*time.Hour {
		return 0, fmt.Errorf("queuelock: Cooldown(%v) must be at least 0 and at most 24h: %w", e.d, err), false
	}
	return e.d, err, true
}
