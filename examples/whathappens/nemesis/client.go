package nemesis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

// RoleEnv makes a process of this program a client; it has its Role.
const RoleEnv = "LOCKKIT_NEMESIS_ROLE"

// A Role configures a client process.
type Role struct {
	Name    string // with the number of the start, so that no two processes share one
	Nodes   []string
	Referee string
	Queue   string // the address of asynq's Redis
	Lock    string // a name in openers
	Guard   bool
	Deaf    bool // it ignores the contexts of its leases
	Skew    time.Duration
	Seed    uint64
}

// Adapters starts adapters on a Locker, and load for them. Their work must call [Client.Under]. stop ends the load,
// the adapters and the Locker.
type Adapters func(c *Client, l *core.Locker) (stop func(context.Context) error, err error)

// A Client works under a lock, reports each result of the lock to the program, and shows the referee its tokens.
type Client struct {
	Role
	locks   Locks
	referee worker
	calls   atomic.Int64
	mu      sync.Mutex
	out     *json.Encoder
}

// Play is main of a client process. It ends when its orders do.
func Play(role string, orders io.Reader, out io.Writer, adapters Adapters) error {
	c := &Client{out: json.NewEncoder(out)}
	if err := json.Unmarshal([]byte(role), &c.Role); err != nil {
		return err
	}

	slog.SetDefault(slog.New(slog.DiscardHandler)) // each fault would be logged
	c.referee.addr = c.Referee
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		io.Copy(io.Discard, orders)
	}()

	if err := c.open(ctx); err != nil {
		return nil // dismissed while the servers could not be used
	}

	stop := c.locks.Close
	if l, ok := c.locks.(lockkit); ok {
		stopAdapters, err := adapters(c, l.locker)
		if err != nil {
			return err
		}
		stop = stopAdapters
	}

	c.say(event{Kind: isReady})
	c.run(ctx)

	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := stop(ending); err != nil {
		c.say(event{Kind: isFailed, Work: "close", Err: c.locks.Class(err)}) // nodes may be away
	}

	return nil
}

// open tries until the lock can be opened: servers may be refused while a fault makes them unfit.
func (c *Client) open(ctx context.Context) (err error) {
	for {
		c.locks, err = openers[c.Lock](c.Role)
		if err == nil {
			return nil
		}
		c.say(event{Kind: isFailed, Work: "open", Err: "unfit", Text: err.Error()})
		if err := stage.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// run does all workloads until ctx ends.
func (c *Client) run(ctx context.Context) {
	var work sync.WaitGroup

	for i, w := range workloads {
		for n := range w.workers {
			work.Go(func() {
				t := &turn{Client: c, name: w.name, random: rand.New(rand.NewPCG(c.Seed, uint64(100*i+n)))}
				for ctx.Err() == nil {
					if err := w.step(ctx, t); errors.Is(err, errors.ErrUnsupported) {
						return
					}
				}
			})
		}
	}

	work.Wait()
}

// now returns the time by the clock of the machine. The clock of this process may be ahead of it.
func (c *Client) now() time.Time { return time.Now().Add(-c.Skew).Round(0) }

// say tells the program; the time is now unless the event has one.
func (c *Client) say(e event) {
	if e.At.IsZero() {
		e.At = c.now()
	}

	e.By = c.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Encode(e) // fails when the program is dead, and then this process ends as well
}

const (
	// lookEvery is how often a worker looks at its context.
	lookEvery = 100 * time.Millisecond
	// gap is how long a worker thinks between a look and its write. A process may be stopped in it, and only the token
	// then keeps the write from being late.
	gap = 50 * time.Millisecond
)

// work works under a lease for d, and reports whether it held the lease to the end.
func (c *Client) work(of event, lease Lease, d time.Duration) (held bool) {
	of.Token = lease.FencingToken()
	end := time.Now().Add(d)
	ended := lease.Context().Done()
	if c.Deaf {
		ended = nil
	}

	for first := true; ; first = false {
		looked := of
		looked.At = c.now() // before the look: a context that is live then was so at this time
		if !c.isLive(lease) {
			looked.Kind = isLost
			if first {
				looked.Kind, looked.Err = isFailed, "late"
			}
			c.say(looked)
			return false
		}
		looked.Kind = isLive
		if first {
			looked.Kind = isGranted
		}
		c.say(looked)

		think := time.NewTimer(min(gap, d/3))
		<-think.C
		v, err := c.referee.show(Write{By: c.Name, Key: of.Key, Semaphore: of.Semaphore, Token: of.Token, Looked: looked.At})
		if err == nil && !v.Accepted && c.isLive(lease) && !c.Deaf {
			wronged := of
			wronged.Kind, wronged.Text = isWronged, fmt.Sprintf("after token %d", v.Greatest)
			c.say(wronged)
		}

		left := time.Until(end)
		if left <= 0 {
			return true
		}
		rest := time.NewTimer(min(left, lookEvery))
		select {
		case <-rest.C:
		case <-ended:
			rest.Stop()
		}
	}
}

// isLive reports whether the holder of a lease believes that it holds it.
func (c *Client) isLive(lease Lease) bool { return c.Deaf || lease.Context().Err() == nil }

// Under works for d under the lease of a context, for an adapter. name is the workload's. A run of a job has a
// tick.
func (c *Client) Under(ctx context.Context, name, job string, tick time.Time, d time.Duration) error {
	lease, ok := core.FromContext(ctx)
	if !ok {
		return errors.New("no lease")
	}

	of := event{Work: name, Key: lease.Key(), Call: int(c.calls.Add(1))}
	if !tick.IsZero() {
		c.say(event{Kind: isStarted, Work: name, Key: job, Tick: tick})
	}

	if !c.work(of, lockkitLease{lease}, d) {
		return context.Cause(lease.Context())
	}

	return nil
}
