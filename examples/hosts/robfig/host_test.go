package robfig

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
	"github.com/lockkit/lockkit/testutil"
)

// The environment of a process.
const (
	ledgerAddr = "HOST_LEDGER" // of the Redis with the ledger
	lockless   = "HOST_LOCKLESS"
)

// What a process says.
const (
	ready = "ready"
	began = "began"
	lost  = "lost"
)

const (
	everySecond = "* * * * * *"
	runsOfTick  = "runs" // the ledger: of each tick, how often it has begun
)

func TestMain(m *testing.M) { replica.Main(m, work) }

// work is a process with a scheduler. Its runs end when the test tells it, or with their context.
func work(self *replica.Self) error {
	ledger := redis.NewClient(&redis.Options{Addr: os.Getenv(ledgerAddr)})
	told := make(chan struct{})
	run := func(ctx context.Context, tick time.Time) error {
		err := ledger.HIncrBy(ctx, runsOfTick, tick.Format(time.RFC3339), 1).Err()
		if err != nil {
			return err
		}
		self.Say(began)
		select {
		case <-told:
			return nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), core.ErrLost) {
				self.Say(lost)
			}
			return context.Cause(ctx)
		}
	}

	scheduler := cron.New(cron.WithLocation(time.UTC), cron.WithSeconds())
	err := add(self, scheduler, run)
	if err != nil {
		return err
	}
	scheduler.Start()
	self.Say(ready)
	self.Hear()
	close(told)
	self.Hear()
	return nil
}

// add adds the job, which run is called for.
func add(self *replica.Self, scheduler *cron.Cron, run func(ctx context.Context, tick time.Time) error) error {
	ctx := context.Background()
	if os.Getenv(lockless) != "" {
		_, err := scheduler.AddFunc(everySecond, func() { _ = run(ctx, time.Now().UTC().Truncate(time.Second)) })
		return err
	}
	service, err := cronlock.New(self.Locker, "billing")
	if err != nil {
		return err
	}
	return addJob(ctx, scheduler, service, "invoices", everySecond, func(ctx context.Context) error {
		r, _ := cronlock.FromContext(ctx)
		return run(ctx, r.Tick)
	})
}

// A ledger is a Redis with the ticks that have begun, and the nodes for locks.
type ledger struct {
	t      *testing.T
	addr   string
	client redis.UniversalClient
	nodes  *replica.Nodes
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	server := testutil.NewServers(t, 1)[0]
	return &ledger{t, server.Addr(), server.Client(), replica.StartNodes(t, replica.Usual)}
}

// start starts a process with a scheduler.
func (l *ledger) start(name string, env ...string) *replica.Replica {
	l.t.Helper()
	return l.nodes.Start(name, append(env, ledgerAddr+"="+l.addr)...)
}

// runs returns how often each tick has begun.
func (l *ledger) runs() map[string]string {
	l.t.Helper()
	runs, err := l.client.HGetAll(l.t.Context(), runsOfTick).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	return runs
}

// awaitTicks waits until n more ticks have begun.
func (l *ledger) awaitTicks(n int) {
	l.t.Helper()
	before := len(l.runs())
	testutil.Await(l.t, "more ticks", func() bool { return len(l.runs()) >= before+n })
}

// wantOnce fails the test if a tick has begun twice.
func (l *ledger) wantOnce() {
	l.t.Helper()
	for tick, runs := range l.runs() {
		if runs != "1" {
			l.t.Errorf("tick %s has begun %s times", tick, runs)
		}
	}
}

// Two processes with a scheduler each begin each tick once.
func TestRobfigProcessesRunEachTickOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, name := range []string{"one", "other"} {
		r := l.start(name)
		r.Await(ready)
		r.Tell("go on")
	}
	l.awaitTicks(8)
	l.wantOnce()
}

// What the lock is for: without it, both begin a tick.
func TestRobfigWithoutLockRunsTwice(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, name := range []string{"one", "other"} {
		l.start(name, lockless+"=yes")
	}
	testutil.Await(t, "a tick that has begun twice", func() bool {
		for _, runs := range l.runs() {
			if runs == "2" {
				return true
			}
		}
		return false
	})
}

// The process that runs a tick is killed. The other one runs a later tick, after the TTL.
func TestRobfigHolderIsKilled(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	one := l.start("one")
	one.Await(began)
	other := l.start("other")
	other.Await(ready)
	one.Kill()

	other.Await(began)
	other.Tell("go on")
	l.awaitTicks(3)
	l.wantOnce()
}

// A process is cut off from the nodes for locks. The context of its run ends, and the other one runs later ticks, also when
// the first one is back.
func TestRobfigHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	one := l.start("one")
	one.Await(began)
	other := l.start("other")
	other.Await(ready)
	one.CutOff()
	one.Await(lost)

	other.Await(began)
	one.Reconnect()
	one.Tell("go on")
	other.Tell("go on")
	l.awaitTicks(3)
	l.wantOnce()
}
