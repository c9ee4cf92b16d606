package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// A failure collects the errors of slots that were not granted. All are *core.OpError, because core returns no others
// for an acquisition.
type failure struct {
	tries    reasons       // of slots that were asked once; also of those that refused a wait for good
	waits    reasons       // of the waits that lasted until their end: what was known last
	guess    *core.OpError // of a wait that ended before a quorum of nodes had answered
	ended    *core.OpError // the end of the caller's context or of the Locker, or a completed key; the first
	deadline error         // the error of the caller's context, if its deadline ended a wait for a known reason
}

// The reasons say why slots were not granted.
type reasons struct {
	held        *core.OpError // of a slot that was taken; of several, the first that may be free
	unavailable *core.OpError // of a slot about which too few nodes answered; the last
}

// add adds the error of a slot; nil adds nothing. isEarlier says that the call went on after it.
func (f *failure) add(err error, isGuess, isEarlier bool) {
	op, isOpError := errors.AsType[*core.OpError](err)
	if isOpError {
		f.deadline = cmp.Or(op.Ended, f.deadline)
	}

	r := &f.waits
	if isEarlier {
		r = &f.tries
	}

	switch core.ClassOf(err) {
	case core.ClassNone:
	case core.ClassHeld:
		isSooner := r.held == nil || op.RetryAfter > 0 && op.RetryAfter < r.held.RetryAfter
		if isSooner {
			r.held = op
		}
	case core.ClassUnavailable:
		if isGuess && !isEarlier {
			f.guess = op
			return
		}
		r.unavailable = op
	default:
		f.ended = cmp.Or(f.ended, op)
	}
}

// isHeld reports whether every slot that was tried and has answered was taken.
func (f *failure) isHeld() bool { return f.ended == nil && f.tries.unavailable == nil }

// isDone reports whether the key is completed.
func (f *failure) isDone() bool { return f.ended != nil && core.ClassOf(f.ended) == core.ClassDone }

// ofTry returns the error of a call that does not wait. It does not say that the key is held if a slot may be free.
func (f *failure) ofTry(key string, k int) error {
	return f.withReason(cmp.Or(f.tries.unavailable, f.tries.held), key, k)
}

// ofWait returns the error of a call that waited. What its waits knew at their end counts for more than what it found
// before: an outage may have begun since. limitIsOver says that the call may not wait any longer: then slots that are
// taken are the reason. Otherwise its waits have ended before, above all because no quorum of nodes answered for a TTL.
func (f *failure) ofWait(key string, k int, limitIsOver bool) error {
	before := cmp.Or(f.tries.held, f.tries.unavailable, f.guess)
	if limitIsOver {
		return f.withReason(cmp.Or(f.waits.held, f.waits.unavailable, before), key, k)
	}
	return f.withReason(cmp.Or(f.waits.unavailable, f.waits.held, before), key, k)
}

// withReason returns the error of a call, given why no slot was granted as far as is known. If the deadline of the
// caller's context ended the call, the error says both.
func (f *failure) withReason(reason *core.OpError, key string, k int) error {
	var op core.OpError
	switch {
	case f.ended == nil && reason == nil:
		// A method of the caller's context ended the goroutines that asked.
		op = core.OpError{Op: core.OpAcquire, Err: core.ErrUnavailable}
	case f.ended == nil:
		op = *reason
		op.Ended = f.deadline
	case reason != nil && errors.Is(f.ended, context.DeadlineExceeded):
		op = *reason
		op.Ended = cmp.Or(f.deadline, f.ended.Detail, f.ended.Err)
	default:
		op = *f.ended
	}

	op.Key = key
	isPlain := k == 1 || op.Detail != nil
	if op.Err == core.ErrHeld && !isPlain { //nolint:errorlint // Err is the sentinel itself
		op.Detail = fmt.Errorf("%w: no slot of %d is free", core.ErrHeld, k)
	}
	return &op
}
