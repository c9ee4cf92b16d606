package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A workload is a kind of use of a lock.
type workload struct {
	name    string
	workers int // in each process
	// step does it once. The error is the reason if that failed.
	step func(ctx context.Context, t *turn) error
}

const longHolds = "long holds"

// workloads are done by each client at the same time. Keys change from minute to minute, so that the history of a key stays
// short enough to be searched.
var workloads = []workload{
	{name: "locks", workers: 2, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{key: t.minutely(t.random.IntN(6)), wait: 5 * time.Second, work: t.between(30, 300)})
		return t.rest(ctx, err, 200, 800)
	}},
	{name: longHolds, workers: 1, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{
			key: t.minutely(t.random.IntN(2)), wait: 20 * time.Second, work: t.between(4_000, 12_000),
		})
		return t.rest(ctx, err, 500, 1_000)
	}},
	{name: "impatient", workers: 1, step: func(ctx context.Context, t *turn) error {
		// It tries for keys that are held for long, so that a server which forgets their holders is asked at once.
		long := turn{t.Client, longHolds, t.random}
		err := t.hold(ctx, holding{key: long.minutely(t.random.IntN(2)), work: t.between(200, 400)})
		return t.rest(ctx, err, 50, 150)
	}},
	{name: "hot key", workers: 2, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{key: t.minutely(0), work: t.between(5, 30)})
		return t.rest(ctx, err, 50, 150)
	}},
	{name: "queue", workers: 2, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{key: t.minutely(0), wait: 30 * time.Second, work: t.between(50, 150)})
		return t.rest(ctx, err, 10, 100)
	}},
	{name: "cooldown", workers: 1, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{
			key: t.minutely(t.random.IntN(2)), wait: 5 * time.Second, work: t.between(30, 100),
			cooldown: t.between(800, 2_000),
		})
		return t.rest(ctx, err, 50, 300)
	}},
	{name: "revoked", workers: 1, step: func(ctx context.Context, t *turn) error {
		err := t.hold(ctx, holding{key: t.minutely(0), wait: 20 * time.Second, work: 10 * time.Second})
		return t.rest(ctx, err, 100, 500)
	}},
	{name: "revoker", workers: 1, step: func(ctx context.Context, t *turn) error {
		t.name = "revoked"
		if err := t.rest(ctx, nil, 4_000, 9_000); err != nil {
			return err
		}
		return t.revoke(ctx, t.minutely(0))
	}},
	{name: "records", workers: 1, step: func(ctx context.Context, t *turn) error {
		err := t.once(ctx, fmt.Sprintf("records@%d", t.now().Unix()/3), t.between(30, 200))
		return t.rest(ctx, err, 300, 1_000)
	}},
	{name: "sets", workers: 2, step: func(ctx context.Context, t *turn) error {
		// Sets meet other sets and single keys, in any order.
		keys := t.some(5)
		if t.random.IntN(3) == 0 {
			err := t.hold(ctx, holding{key: keys[0], wait: 5 * time.Second, work: t.between(30, 200)})
			return t.rest(ctx, err, 100, 500)
		}
		err := t.holdAll(ctx, keys[:2+t.random.IntN(2)], 5*time.Second, t.between(30, 200))
		return t.rest(ctx, err, 100, 500)
	}},
	{name: "permits", workers: 2, step: func(ctx context.Context, t *turn) error {
		h := holding{key: t.minutely(0), wait: 5 * time.Second, work: t.between(100, 600), isPermit: t.random.IntN(5) > 0}
		h.semaphore = h.key // a holder without a permit counts as well
		return t.rest(ctx, t.hold(ctx, h), 20, 200)
	}},
}

// permits is how many may hold a key of the workload of permits at a time.
const permits = 3

// A turn is one worker of a workload.
type turn struct {
	*Client
	name   string
	random *rand.Rand
}

// minutely returns the name of a key of this workload in this minute. What is before the @ names the row of the picture.
func (t *turn) minutely(n int) string { return fmt.Sprintf("%s %d@%d", t.name, n, t.now().Unix()/60) }

// some returns the names of n keys of this workload in this minute, in random order.
func (t *turn) some(n int) (keys []string) {
	for _, i := range t.random.Perm(n) {
		keys = append(keys, t.minutely(i))
	}

	return keys
}

// between draws a number of milliseconds.
func (t *turn) between(from, to int) time.Duration {
	return time.Duration(from+t.random.IntN(to-from)) * time.Millisecond
}

// rest waits between two steps, for a number of milliseconds, unless the lock does not support the step.
func (t *turn) rest(ctx context.Context, err error, from, to int) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}

	return stage.Sleep(ctx, t.between(from, to))
}

// A holding is how a key is held.
type holding struct {
	key      string
	wait     time.Duration // 0: it tries once
	work     time.Duration
	cooldown time.Duration
	isPermit bool // it holds a permit for the key, and not the key itself

	// semaphore is the key, if others hold permits for it at the same time.
	semaphore string
}

// event returns an event of a new call.
func (t *turn) event(key string) event {
	return event{Work: t.name, Key: key, Call: int(t.calls.Add(1)), Asked: t.now()}
}

// failed reports that a call ended without a lease, unless this process ends.
func (t *turn) failed(ctx context.Context, of event, err error) error {
	if ctx.Err() == nil && !errors.Is(err, errors.ErrUnsupported) {
		of.Kind, of.Err = isFailed, t.locks.Class(err)
		of.Text = err.Error()
		t.say(of)
	}

	return err
}

// hold acquires a key, works, and releases it.
func (t *turn) hold(ctx context.Context, h holding) error {
	of := t.event(h.key)
	lease, err := t.acquire(ctx, h)
	if err != nil {
		return t.failed(ctx, of, err)
	}

	of.Key, of.Semaphore = lease.Key(), h.semaphore
	t.work(of, lease, h.work)

	released := of
	released.Kind, released.Token = isReleased, lease.FencingToken()
	released.Asked, released.For = t.now(), h.cooldown
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = lease.Release(releasing, h.cooldown)
	released.Err = t.locks.Class(err)
	t.say(released)
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}

	return nil
}

// acquire acquires a key or a permit for it.
func (t *turn) acquire(ctx context.Context, h holding) (Lease, error) {
	if !h.isPermit {
		return t.locks.Acquire(ctx, h.key, h.wait)
	}

	locks, ok := t.locks.(PermitLocks)
	if !ok {
		return nil, errors.ErrUnsupported
	}

	return locks.AcquirePermit(ctx, h.key, permits, h.wait)
}

// holdAll acquires a set of keys, works on all of them at the same time, and releases them.
func (t *turn) holdAll(ctx context.Context, keys []string, wait, work time.Duration) error {
	locks, ok := t.locks.(SetLocks)
	if !ok {
		return errors.ErrUnsupported
	}

	of := t.event(strings.Join(keys, " + "))
	set, err := locks.AcquireAll(ctx, keys, wait)
	if err != nil {
		return t.failed(ctx, of, err)
	}

	// The log and the referee know each key by itself.
	var workers sync.WaitGroup
	for _, lease := range set.Leases() {
		ofKey := of
		ofKey.Key = lease.Key()
		workers.Go(func() { t.work(ofKey, lease, work) })
	}
	workers.Wait()

	released := of
	released.Kind, released.Asked = isReleased, t.now()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	released.Err = t.locks.Class(set.Release(releasing))
	t.say(released)
	return nil
}

// once does work under Once.
func (t *turn) once(ctx context.Context, key string, work time.Duration) error {
	of := t.event(key)
	err := t.locks.Once(ctx, key, func(lease Lease) error {
		of.Token = lease.FencingToken()
		if !t.work(of, lease, work) {
			return context.Cause(lease.Context())
		}
		return nil
	})
	if err != nil {
		return t.failed(ctx, of, err)
	}

	of.Kind = isDone
	t.say(of)
	return nil
}

// revoke ends the lease of the holder of a key.
func (t *turn) revoke(ctx context.Context, key string) error {
	of := t.event(key)
	token, remaining, err := t.locks.Revoke(ctx, key)
	if err != nil {
		of.Work = "revocation"
		return t.failed(ctx, of, err)
	}

	of.Kind, of.Token, of.For = isRevoked, token, remaining
	t.say(of)
	return nil
}
