package queuelock

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ErrNotRun matches the error of a delivery that has not called its handler because a key was held ([core.ErrHeld]) or
// the locks were unavailable ([core.ErrUnavailable], [core.ErrClosed]). It also matches the error of a delivery after
// its handler returned Cooldown, or the error of a store that refused its fencing token (package core/fence). asynq
// delivers the task again and counts no retry; on its last attempt, asynq archives it instead.
var ErrNotRun = errors.New("not run")

// A notRunError is the result for asynq of a task that is given back. The functions that Configure sets recognize it.
type notRunError struct {
	error // matches ErrNotRun, and the reason
	delay time.Duration
}

func (e *notRunError) Unwrap() error { return e.error }

// isNotRun reports whether err gives a task back.
func isNotRun(err error) bool {
	_, ok := errors.AsType[*notRunError](err)
	return ok
}

// Cooldown returns an error by which a handler makes asynq deliver its task again after d, 0 to 24h, for example when a
// service asks it to come back later (status 429). No retry is counted, no worker is occupied, and the key (WithKey) is
// not granted before d has passed, with the exceptions of [core.Cooldown]. The handler's error may wrap it. On the last
// attempt of its task, asynq archives the task (EventArchived). If d is out of range, the error is like any other.
func Cooldown(d time.Duration) error {
	if d < 0 || d > 24*time.Hour {
		return fmt.Errorf("queuelock: Cooldown(%v): must be at least 0 and at most 24h", d)
	}
	return &cooldownError{d}
}

type cooldownError struct{ d time.Duration }

func (e *cooldownError) Error() string {
	return fmt.Sprintf("queuelock: the handler returned Cooldown(%v)", e.d)
}

// cooldownOf returns the time until the key can be granted again, or 0 if err does not give it.
func cooldownOf(err error) time.Duration {
	if cooldown, ok := errors.AsType[*cooldownError](err); ok {
		return cooldown.d
	}

	if op, ok := errors.AsType[*core.OpError](err); ok && op.Held == core.HeldCooldown {
		return op.RetryAfter
	}
	return 0
}
