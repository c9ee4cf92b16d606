package core

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// What only waiting uses may be denied to lockkit's user: that costs the order, or the wake-up, never the lock, and is
// said once.

// acquiring begins Acquire and returns where its result will be.
func acquiring(l *Locker, ctx context.Context, key string) <-chan tryResult {
	done := make(chan tryResult, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		done <- tryResult{lease, err}
	}()
	return done
}

// A deniedServer gives its users the rights of the manual, without some.
type deniedServer struct {
	t     *testing.T
	addr  string
	admin redis.UniversalClient
	rules []string
}

func newDeniedServer(t *testing.T) *deniedServer {
	server := testutil.NewServers(t, 1)[0]
	return &deniedServer{t, server.Addr(), server.Client(), manualsACL(t)}
}

// open returns two Lockers whose user lacks the rights that denied finds, and what they log.
func (d *deniedServer) open(denied func(rule string) bool, opts ...Option) (a, b *Locker, log *logbook.Book) {
	d.t.Helper()
	args := []any{"ACL", "SETUSER", "lockkit", "reset"}
	for _, rule := range d.rules {
		if !denied(rule) {
			args = append(args, rule)
		}
	}
	for _, cmd := range [][]any{{"FLUSHALL"}, args} {
		if err := d.admin.Do(d.t.Context(), cmd...).Err(); err != nil {
			d.t.Fatalf("%v: %v", cmd, err)
		}
	}
	log = &logbook.Book{}
	open := func() *Locker {
		l, err := Open([]string{"redis://lockkit:secret@" + d.addr}, append(opts, unhurried, WithLogger(log.Logger()))...)
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { l.Close(over()) })
		return l
	}
	return open(), open(), log
}

// handOff has b wait for a, until waiting is true, and then a release the key.
func (d *deniedServer) handOff(a, b *Locker, key string, waiting func() bool) {
	d.t.Helper()
	held, err := a.TryAcquire(d.t.Context(), key)
	if err != nil {
		d.t.Fatal(err)
	}
	got := acquiring(b, d.t.Context(), key)
	testutil.Await(d.t, "somebody waits for "+key, waiting)
	released := time.Now()
	if err := held.Release(d.t.Context()); err != nil {
		d.t.Errorf("%s: released with %v", key, err)
	}
	next := testutil.Receive(d.t, got)
	if next.err != nil {
		d.t.Fatalf("%s: who waited got %v", key, next.err)
	}
	if waited := time.Since(released); waited > 30*time.Second { // the lease would have lasted for a minute
		d.t.Errorf("%s: got %v after it was released", key, waited)
	}
	if err := next.lease.Release(d.t.Context()); err != nil {
		d.t.Errorf("%s: who waited released with %v", key, err)
	}
}

// queued reports whether n calls are in the queue of key.
func (d *deniedServer) queued(key string, n int64) func() bool {
	return func() bool { return d.admin.ZCard(d.t.Context(), "lockkit:{0}w:"+key).Val() == n }
}

func only(rules ...string) func(string) bool {
	return func(rule string) bool { return slices.Contains(rules, rule) }
}

func TestWaitingWithoutTheRightTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		denied        func(string) bool
		start, listen int // warnings of each: who may not listen is in no queue
		commands      string
	}{
		"publish":            {only("+publish"), 1, 0, "commands=publish"},
		"subscribe":          {only("+subscribe"), 0, 1, ""},
		"channels":           {only("&lockkit:*"), 1, 1, "commands=publish"},
		"all that it may do": {only("+publish", "+subscribe", "+ping", "&lockkit:*"), 1, 1, `commands="publish ping"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeniedServer(t)
			o := &pollster{}
			a, b, log := d.open(c.denied, WithObserver(o.observer()))
			for _, key := range []string{"k", "l"} {
				asked := len(o.verdicts(OpAcquire, 0))
				d.handOff(a, b, key, func() bool { return len(o.verdicts(OpAcquire, 0)) > asked+1 })
				if c.listen == 0 {
					continue
				}
				testutil.Await(t, "the subscription is denied", func() bool { return b.e.waits.channel(0) == "" })
			}
			if n := d.admin.Exists(t.Context(), "lockkit:{0}w:l").Val(); n != 0 {
				t.Error("there is a queue")
			}
			log.Want(t, 2*c.start, "level=WARN", "denies what waiting for a key uses", c.commands)
			log.Want(t, c.listen, "level=WARN", "does not allow to subscribe")
			log.Want(t, 2*c.start+c.listen, "")
		})
	}
}

// Without a queue, who waits asks as often as withRetryDelay has it.
func TestWaitingWithoutTheRightToQueue(t *testing.T) {
	t.Parallel()
	d := newDeniedServer(t)
	o := &pollster{}
	a, b, log := d.open(func(rule string) bool { return strings.HasPrefix(rule, "+z") }, WithObserver(o.observer()), withRetryDelay(10*time.Millisecond, 20*time.Millisecond))
	log.Want(t, 2, "level=WARN", "denies what waiting for a key uses", `commands="zadd zcard zrank zrange zremrangebyrank zrem"`)
	began := time.Now()
	d.handOff(a, b, "k", func() bool { return len(o.verdicts(OpAcquire, 0)) > 20 })
	if took := time.Since(began); took > 10*time.Second { // in a queue, 15 at least
		t.Errorf("asked 20 times in %v", took)
	}
	if n := d.admin.Exists(t.Context(), "lockkit:{0}w:k").Val(); n != 0 {
		t.Error("there is a queue")
	}
	log.Want(t, 2, "")
}

// Whichever of the queue's commands is denied, the keys go from hand to hand.
func TestWaitingWithHalfOfTheRights(t *testing.T) {
	t.Parallel()
	d := newDeniedServer(t)
	for _, rule := range d.rules {
		if !strings.HasPrefix(rule, "+z") {
			continue
		}
		o := &pollster{}
		a, b, log := d.open(only(rule), WithObserver(o.observer()))
		for i := range 3 {
			asked := len(o.verdicts(OpAcquire, 0))
			d.handOff(a, b, rule, func() bool { return len(o.verdicts(OpAcquire, 0)) > asked+1 })
			if a, b = b, a; i == 0 && rule == "+zadd" && !d.queued(rule, 0)() {
				t.Error("there is a queue")
			}
		}
		log.Want(t, 2, "level=WARN", "denies what waiting for a key uses", "commands="+rule[1:])
		log.Want(t, 2, "")
	}
}
