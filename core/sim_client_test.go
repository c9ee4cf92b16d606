package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// This file has the clients of the simulation.

// A simProcess is a process whose messages have fates drawn from the seed.
type simProcess struct {
	*process
	mu     sync.Mutex
	paused time.Time   // requests that are sent before this time arrive after it
	near   time.Time   // until then each request takes nine tenths of a node timeout
	cut    []time.Time // by node: until then the node is out of reach
}

func (s *simulation) newProcess(i int, p *process) *simProcess {
	sp := &simProcess{process: p, cut: make([]time.Time, s.mixture.nodes)}
	random := s.Random(uint64(1000 + i))
	var mu sync.Mutex
	p.e.jitter = func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		if n > int64(time.Minute) { // the renewal of a lease of hours must come due while faults happen
			return n / 2
		}
		return random.Int64N(n)
	}

	for j, k := range p.links {
		k.Together = func() { s.Count("sent together") }
		r := s.Random(uint64(100*(i+1) + j))
		k.Decide(func(wire.Op, coretest.Sent) coretest.Fate { // called with the link's lock
			if s.isCalm() {
				return coretest.Fate{}
			}
			f := coretest.Fate{Delay: s.latency(r), ReplyDelay: s.latency(r), Lose: r.Float64() < s.loss, LoseReply: r.Float64() < s.loss, Twice: r.Float64() < s.twin}
			f.Panic = s.hookPanics(r)
			sp.mu.Lock()
			defer sp.mu.Unlock()
			if time.Now().Before(sp.near) {
				f = nearlyLate(r, p.p.nodeTimeout)
			}
			f.Delay += max(0, time.Until(sp.paused))
			f.Refuse = time.Now().Before(sp.cut[j])
			return f
		})
	}
	return sp
}

func (s *simulation) latency(r *rand.Rand) time.Duration {
	d := exponential(r, s.delay)
	if r.Float64() < s.tail {
		d += exponential(r, s.ttl()*7/10)
	}
	return d
}

// nearlyLate returns the fate of a request that takes nine tenths of a node timeout, to the node and back.
func nearlyLate(r *rand.Rand, timeout time.Duration) coretest.Fate {
	whole := timeout * 9 / 10
	there := time.Duration(r.Int64N(int64(whole)))
	return coretest.Fate{Delay: there, ReplyDelay: whole - there}
}

// slowDown makes each request take nine tenths of a node timeout for a time of d.
func (p *simProcess) slowDown(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.near = time.Now().Add(d)
}

func (p *simProcess) isNear() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.near)
}

func (p *simProcess) pause(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = time.Now().Add(d)
}

// cutOff keeps the process from some nodes for a time of d. It calls from once per node to select them.
func (p *simProcess) cutOff(d time.Duration, from func(i int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.cut {
		if from(i) {
			p.cut[i] = time.Now().Add(d)
		}
	}
}

func always(int) bool { return true }

const simJobs = 6 // number of keys that are completed, one after the other

// client is one goroutine of a process. It locks, works and writes until the end.
func (s *simulation) client(p *simProcess, i, line int) {
	r := s.Random(uint64(10*(i+1) + line))
	for n := 0; time.Now().Before(s.end); n++ {
		time.Sleep(exponential(r, s.think) + s.lullLeft())
		key, job := fmt.Sprintf("key-%d", r.IntN(2)), false
		if r.Float64() < s.jobs {
			turn := int(float64(s.elapsed()) / float64(simTime) * simJobs)
			key, job = jobKey(max(0, min(turn, simJobs-1)-r.IntN(2))), true // the current job or the one before
		}

		if !job && r.Float64() < s.sets {
			s.both(p, r, fmt.Sprintf("%d.%d.%d", i, line, n))
			continue
		}

		w := &work{s: s, p: p, r: r, key: key, job: job, holder: fmt.Sprintf("%d.%d.%d", i, line, n)}
		ctx, cancel := context.WithCancel(context.Background())
		patience := time.AfterFunc(exponential(r, s.ttl()), cancel)
		s.history.attempt(key, w.holder)
		near := p.isNear()

		acquire := p.Acquire
		if r.IntN(4) == 0 {
			acquire = p.TryAcquire
		}
		lease, err := acquire(ctx, key)
		if err == nil && near && p.isNear() {
			s.Count("granted nearly late")
		}

		switch intime := patience.Stop(); {
		case err != nil:
			s.refused(key, err)
			if errors.Is(err, ErrDone) {
				time.Sleep(exponential(r, s.ttl()/4)) // until the next job
			}
		case lease.Context().Err() != nil && s.callbacks.delays(): // the lease was lost before Acquire returned it
			lease.Release(context.Background())
		case !intime: // the grant came at the moment when the caller gave up
			s.operators.reported(key, lease)
			s.history.granted(lease, w.holder)
			s.history.ended(lease, w.holder)
			lease.Release(context.Background())
		default:
			w.under(lease)
		}
		cancel()
	}
}

func jobKey(i int) string { return fmt.Sprintf("job-%d", i) }

func (s *simulation) refused(key string, err error) {
	op, ok := errors.AsType[*OpError](err)
	switch {
	case !ok:
		s.Violation("untyped error: %v", err)
	case errors.Is(err, ErrDone):
		s.Count("done")
		s.records.seen(s, key, op.Record)
	}
}

// A work is the work of one holder under its lease.
type work struct {
	s      *simulation
	p      *simProcess
	r      *rand.Rand
	key    string
	holder string
	job    bool
}

// under works under the lease: it writes to the fenced store. It ends the lease in one of several ways.
func (w *work) under(lease *Lease) {
	s, r := w.s, w.r
	token, ctx := lease.FencingToken(), lease.Context()
	s.operators.reported(w.key, lease)
	s.history.granted(lease, w.holder)
	s.Count("grants")
	hold := min(exponential(r, s.hold), time.Until(s.end)+s.ttl())
	back := time.Now()
	if s.isLong(lease) {
		s.Count("lease of hours")
		if time.Since(s.Began) > s.lull+simTime/2 {
			s.Count("granted after hours")
		}
	} else if r.Float64() < s.strays {
		// The holder is cut off until its lease has run out. Another client may get the key meanwhile.
		away := s.ttl()*3/4 + exponential(r, s.ttl()*3/4)
		w.p.cutOff(away, always)
		if r.IntN(2) == 0 { // requests that are sent in the last third arrive afterwards
			w.p.cutOff(away*2/3, always)
			w.p.pause(away)
		}
		s.Tracef("%s is cut off for %v", w.holder, away)
		s.nemesis.haunts(away, r)
		hold, back = away+exponential(r, s.ttl()/4), back.Add(away+exponential(r, s.ttl()/8))
	}

	until := time.After(hold)
	for working := true; working; {
		if ctx.Err() == nil {
			s.history.wrote(w.key, token, s.fences.write(w.key, token))
		}
		select {
		case <-ctx.Done():
			working = false
		case <-until:
			working = false
		case <-time.After(exponential(r, s.ttl()/4)):
		}
	}

	s.history.ended(lease, w.holder)
	switch {
	case w.job:
		time.Sleep(time.Until(back))
		w.complete(lease)
	case r.Float64() >= s.deaths: // otherwise the holder dies, and the context of its acquisition ends
		lease.Release(context.Background())
	}
}

// complete completes the key of the job. Now and then it repeats that, whatever the result was.
func (w *work) complete(lease *Lease) {
	s, r := w.s, w.r
	late, done := lease.Context().Err() != nil, false
	for {
		ctx := context.Background()
		if r.IntN(2) == 0 {
			ctx = over() // Complete makes one round
		}
		err := lease.Complete(ctx, []byte(w.holder))
		switch {
		case err == nil:
			s.Count("completed")
			if done {
				s.Count("completed again")
			} else if late {
				s.Count("completed late")
			}
			done = true
			s.records.completed(s, w.key, w.holder, lease.FencingToken())
		case done:
			s.Violation("completed %s before, and now: %v", w.key, err)
		case errors.Is(err, ErrLost):
			s.Count("refused completion")
		}

		switch r.IntN(4) {
		case 0:
			time.Sleep(exponential(r, s.ttl()/4))
			continue
		case 1:
			if !done {
				lease.Release(context.Background())
			}
		}
		return
	}
}

// recovers checks that every key becomes free again after the last fault.
func (s *simulation) recovers() {
	p := s.promises.witness
	for _, key := range []string{"key-0", "key-1"} {
		ctx, cancel := context.WithTimeout(context.Background(), 3*s.longest())
		lease, err := p.Acquire(ctx, key)
		cancel()
		if err != nil {
			s.Violation("%s is never free again: %v", key, err)
			continue
		}
		s.history.granted(lease, "last")
	}

	for i := range simJobs {
		lease, err := p.TryAcquire(context.Background(), jobKey(i))
		if err != nil {
			s.refused(jobKey(i), err)
			continue
		}
		s.history.granted(lease, "last")
	}
}

// A fencedStore rejects a write whose token is smaller than the largest that it has seen.
type fencedStore struct {
	mu   sync.Mutex
	seen map[string]uint64
}

func (f *fencedStore) write(key string, token uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]uint64{}
	}
	if token < f.seen[key] {
		return false
	}
	f.seen[key] = token
	return true
}
