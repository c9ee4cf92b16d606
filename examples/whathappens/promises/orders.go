package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

// An order is what the program tells a process of the service to do, beside its traffic.
type order struct {
	Do    verb
	Op    string // the name of the call in events
	Key   string
	Locks string // which Locker, if not that of the service: one that was opened under this name

	MaxWait, MaxHold time.Duration // of acquire
	Nodes            []string      // of open
	Guard            bool          // of open; its keys then have a prefix of their own
	Period, Work     time.Duration // of job, lead
	Grace            time.Duration // of job
	Starts           int           // of job
	Within           time.Duration // of shutdown
}

type verb string

const (
	acquire  verb = "acquire" // until the key is granted or the call fails
	try      verb = "try"     // TryAcquire
	insist   verb = "insist"  // TryAcquire again and again, until it is granted
	release  verb = "release"
	complete verb = "complete"
	once     verb = "once"
	look     verb = "look"
	write    verb = "write" // without looking
	inspect  verb = "inspect"
	open     verb = "open"
	addJob   verb = "job"
	lead     verb = "lead"     // be a candidate of group Op, with two jobs that only its leader runs
	resign   verb = "resign"   // close the Service of the group
	shutdown verb = "shutdown" // as on SIGTERM
	drop     verb = "drop"     // end all that these orders began
)

// calls does what it is ordered to do.
type calls struct {
	*service
	ctx    context.Context // ends with a drop
	cancel context.CancelFunc
	work   *sync.WaitGroup

	mu     sync.Mutex
	leases map[string]*core.Lease
	opened map[string]*core.Locker // by name
	jobs   []*cronlock.Job
	groups map[string]*group
}

// A group is one of leaders.
type group struct {
	elector *leader.Elector
	cron    *cronlock.Service
}

func newCalls(s *service) *calls {
	c := &calls{service: s}
	c.reset()
	return c
}

func (c *calls) reset() {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work = &sync.WaitGroup{}
	c.leases, c.opened, c.groups = map[string]*core.Lease{}, map[string]*core.Locker{}, map[string]*group{}
	c.jobs = nil
}

// follow returns when there are no more orders.
func (c *calls) follow(in io.Reader) {
	orders := json.NewDecoder(in)
	for {
		var o order
		if orders.Decode(&o) != nil {
			c.drop()
			return
		}
		switch o.Do {
		case drop:
			c.drop()
		case open:
			c.open(o)
		default:
			c.work.Go(func() { c.do(o) })
		}
	}
}

// do follows an order.
func (c *calls) do(o order) {
	switch o.Do {
	case acquire, try, insist:
		c.acquire(o)
	case release:
		err := c.lease(o.Op).Release(context.WithoutCancel(c.ctx))
		c.say(event{Kind: isReleased, Op: o.Op, Err: classOf(err), Reason: reasonOf(err)})
	case complete:
		err := c.lease(o.Op).Complete(context.WithoutCancel(c.ctx), nil)
		c.say(event{Kind: isComplete, Op: o.Op, Err: classOf(err), Reason: reasonOf(err)})
	case look:
		c.say(event{Kind: isLook, Op: o.Op, Err: classOf(context.Cause(c.lease(o.Op).Context()))})
	case write:
		c.say(event{Kind: isWrite, Op: o.Op, Key: c.lease(o.Op).Key(), Token: c.lease(o.Op).FencingToken()})
	case once:
		c.once(o)
	case inspect:
		c.inspect(o)
	case addJob:
		c.addJob(o)
	case lead:
		c.lead(o)
	case resign:
		c.resign(o)
	case shutdown:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), o.Within)
		defer cancel()
		err := c.service.shutdown(ctx)
		c.say(event{Kind: isClosed, Err: classOf(err)})
	case open, drop: // follow has done it
	}
}

func (c *calls) lease(op string) *core.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[op]
}

// locks returns the Locker of an order.
func (c *calls) locks(o order) *core.Locker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.opened[o.Locks]; ok {
		return l
	}
	return c.locker
}

// insistPeriod is how often a call that insists is repeated.
const insistPeriod = 100 * time.Millisecond

func (c *calls) acquire(o order) {
	l, began := c.locks(o), time.Now()
	c.say(event{At: began, Kind: isAsked, Op: o.Op, Key: o.Key})
	var opts []core.CallOption
	if o.MaxWait > 0 {
		opts = append(opts, core.MaxWait(o.MaxWait))
	}
	if o.MaxHold > 0 {
		opts = append(opts, core.MaxHold(o.MaxHold))
	}
	call := l.Acquire
	if o.Do != acquire {
		call = l.TryAcquire
	}
	lease, err := call(c.ctx, o.Key, opts...)
	for o.Do == insist && err != nil && stage.Sleep(c.ctx, insistPeriod) == nil {
		lease, err = call(c.ctx, o.Key, opts...)
	}
	if err != nil {
		c.say(event{Kind: isRefused, Op: o.Op, Key: o.Key, Err: classOf(err), Took: time.Since(began)})
		return
	}
	c.mu.Lock()
	c.leases[o.Op] = lease
	c.mu.Unlock()
	of := event{Op: o.Op, Key: o.Key, Token: lease.FencingToken()}
	granted := of
	granted.Kind, granted.Took = isGranted, time.Since(began)
	c.say(granted)
	c.hold(lease.Context(), of, c.ctx.Done(), c.Break == breakDeaf)
	ended := of
	ended.Kind = isEnded
	ended.Err, ended.Reason = classOf(context.Cause(lease.Context())), reasonOf(context.Cause(lease.Context()))
	c.say(ended)
}

func (c *calls) once(o order) {
	ran := ""
	err := c.locks(o).Once(c.ctx, o.Key, func(context.Context) error { ran = "ran"; return nil })
	c.say(event{Kind: isOnce, Op: o.Op, Err: classOf(err), Text: ran})
}

// inspectPeriod is how often the nodes are asked what they have of a key.
const inspectPeriod = 200 * time.Millisecond

// inspect says what each node says of a key, until all is dropped.
func (c *calls) inspect(o order) {
	for stage.Sleep(c.ctx, inspectPeriod) == nil {
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		state, _ := c.locks(o).Inspect(ctx, o.Key)
		cancel()
		for _, n := range state.Nodes {
			e := event{Kind: isNode, Op: o.Op, Key: o.Key, Status: n.Node, Text: fmt.Sprint(n.Verdict)}
			if n.Holder != nil {
				e.Token = n.Holder.Token
			}
			c.say(e)
		}
	}
}

func (c *calls) open(o order) {
	var opts []core.Option
	if o.Guard {
		opts = append(opts, core.WithRestartGuard(true), core.WithKeyPrefix("guarded:"))
	}
	l, err := core.Open(o.Nodes, opts...)
	if err != nil {
		c.say(event{Kind: isLog, Text: "open " + o.Locks + ": " + err.Error()})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened[o.Locks] = l
}

func (c *calls) addJob(o order) {
	policy := []cronlock.JobOption{cronlock.AtLeastOnce(o.Starts)}
	if o.Grace > 0 {
		policy = append(policy, cronlock.WithGrace(o.Grace))
	}
	job, err := c.cron.Add(o.Op, cronlock.Every(o.Period), func(ctx context.Context) error {
		return c.run(ctx, o.Work, o.Starts)
	}, policy...)
	if err != nil {
		c.say(event{Kind: isLog, Text: "add " + o.Op + ": " + err.Error()})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
}

// lead makes this process a candidate of a group, whose leader runs a long job and a short one.
func (c *calls) lead(o order) {
	elector, err := leader.New(c.locker, o.Op, leader.OnElected(func(ctx context.Context, _ leader.Term) {
		c.say(event{Kind: isLeader, Op: o.Op})
		<-ctx.Done()
	}))
	if err != nil {
		c.say(event{Kind: isLog, Text: "lead: " + err.Error()})
		return
	}
	cron, err := cronlock.New(c.locker, o.Op, cronlock.WithElector(elector))
	if err == nil {
		_, err = cron.Add(o.Op+"-long", cronlock.Every(10*time.Second), func(ctx context.Context) error { return c.run(ctx, o.Work, 1) })
	}
	if err == nil {
		_, err = cron.Add(o.Op+"-short", cronlock.Every(o.Period), func(ctx context.Context) error { return c.run(ctx, 0, 1) })
	}
	if err != nil {
		c.say(event{Kind: isLog, Text: "lead: " + err.Error()})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[o.Op] = &group{elector, cron}
}

func (c *calls) resign(o order) {
	c.mu.Lock()
	g := c.groups[o.Op]
	c.mu.Unlock()
	err := g.cron.Close(context.WithoutCancel(c.ctx))
	c.say(event{Kind: isClosed, Op: o.Op, Err: classOf(err)})
}

// drop ends what orders began, and says so.
func (c *calls) drop() {
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c.mu.Lock()
	for _, job := range c.jobs {
		job.Remove()
	}
	groups, lockers, leases := c.groups, c.opened, c.leases
	c.mu.Unlock()
	var err error
	for _, g := range groups {
		err = errors.Join(err, g.cron.Close(ctx), g.elector.Close(ctx))
	}
	for _, lease := range leases {
		_ = lease.Release(ctx) // most have been released
	}
	for _, l := range lockers {
		err = errors.Join(err, l.Close(ctx))
	}
	c.work.Wait()
	c.reset()
	c.say(event{Kind: isIdle, Err: classOf(err)})
}
