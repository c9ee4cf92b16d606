package queuelock

import (
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// briefRest is for how long a key may rest (Cooldown) that tasks wait for in place all the same.
const briefRest = 3 * time.Second

// rest notes that nobody gets key for that long (Cooldown), and ends the waits for it. For keys beyond those that are
// remembered, tasks wait in place.
func (ws *workers) rest(key string, d time.Duration) {
	if d <= briefRest {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	remember(ws.resting, key, time.Now().Add(d), func(until time.Time) bool { return time.Until(until) <= 0 })
	for i, w := range slices.Backward(ws.waiting) { // giveWay takes them off
		if w.key == key {
			ws.giveWay(i)
		}
	}
}

// rests returns for how long nobody gets key, as far as this server knows.
func (ws *workers) rests(key string) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return time.Until(ws.resting[key])
}

// rested forgets that nobody gets a key, which somebody has got.
func (ws *workers) rested(key string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.resting, key)
}

// orKept returns err, that the key is held, with what this server knows of its rest: whoever is kept from a key by another
// task of this process is not told of that.
func (d *delivery) orKept(key string, err error) error {
	switch op, ok := errors.AsType[*core.OpError](err); {
	case !ok || core.ClassOf(err) != core.ClassHeld:
	case op.Held == core.HeldRests && op.RetryAfter > briefRest:
		d.wiring.rest(key, op.RetryAfter)
	default:
		if left := d.wiring.rests(key); op.Held != core.HeldRests && left > briefRest {
			return &core.OpError{Op: core.OpAcquire, Key: key, Err: core.ErrHeld, Held: core.HeldRests, RetryAfter: left}
		}
	}
	return err
}
