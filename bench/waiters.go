package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Waiters are lockers in a process of their own. Its methods are called by another one, with net/rpc.
type Waiters struct {
	ctx     context.Context // ends with the connection
	lockers []locker
}

// OpenArgs says which lockers to open.
type OpenArgs struct {
	Peer    string
	Addrs   []string
	Lockers int // each has clients of its own
}

// A Wait is for one key. Times are those of the clock.
type Wait struct {
	Begun    time.Duration
	Granted  time.Duration // 0 = not when the time was over
	Released time.Duration // when the release began
}

// Open opens lockers, and returns how many.
func (w *Waiters) Open(args OpenArgs, opened *int) error {
	i := slices.IndexFunc(allWaiting, func(p peer) bool { return p.name == args.Peer })
	if i < 0 {
		return fmt.Errorf("there is no peer %q", args.Peer)
	}
	for range args.Lockers {
		l, err := allWaiting[i].open(w.ctx, args.Addrs, ttl)
		if err != nil {
			return err
		}
		w.lockers = append(w.lockers, l)
	}
	*opened = len(w.lockers)
	return nil
}

func (w *Waiters) close() {
	inParallel(len(w.lockers), func(i int) error {
		w.lockers[i].close()
		return nil
	})
}

// Await has the first locker wait for a key, which it gives back at once.
func (w *Waiters) Await(key string, wait *Wait) error {
	wait.Begun = clock()
	unlock, err := w.lockers[0].lock(w.ctx, key)
	wait.Granted = clock()
	if err != nil {
		return err
	}
	wait.Released = clock()
	return unlock(w.ctx)
}

// LoopArgs says what each locker does, over and over: take the key, hold it, give it back.
type LoopArgs struct {
	Key         string
	Hold, Until time.Duration
}

// LoopReply is what came of it.
type LoopReply struct {
	Waits    [][]Wait // by locker
	Failures int      // of those that are not among the waits
	Failure  string   // the first one
}

// Loop has all lockers contend for one key until the time is over.
func (w *Waiters) Loop(args LoopArgs, reply *LoopReply) error {
	w.loops(w.lockers, slices.Repeat([]string{args.Key}, len(w.lockers)), args, reply)
	return nil
}

// loops has each locker loop for the key of the same index until the time is over.
func (w *Waiters) loops(lockers []locker, keys []string, args LoopArgs, reply *LoopReply) {
	// No deadline: some peers would hold the key no longer than to that.
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	defer time.AfterFunc(args.Until-clock(), cancel).Stop()
	reply.Waits = make([][]Wait, len(lockers))
	var mu sync.Mutex
	var loops sync.WaitGroup
	for i, l := range lockers {
		own := args
		own.Key = keys[i]
		loops.Go(func() {
			waits, failures, failure := loop(ctx, l, own)
			mu.Lock()
			defer mu.Unlock()
			reply.Waits[i] = waits
			reply.Failures += failures
			if failure != nil {
				reply.Failure = cmp.Or(reply.Failure, failure.Error())
			}
		})
	}
	loops.Wait()
}

func loop(ctx context.Context, l locker, args LoopArgs) (waits []Wait, failures int, failure error) {
	holding, err := newSleeper()
	if err != nil {
		return nil, 1, err
	}
	defer holding.close()
	for ctx.Err() == nil {
		wait := Wait{Begun: clock()}
		unlock, err := l.lock(ctx, args.Key)
		if err == nil {
			wait.Granted = clock()
			holding.sleep(args.Hold)
			wait.Released = clock()
			err = unlock(context.WithoutCancel(ctx))
		}
		if err != nil && ctx.Err() == nil { // what fails after that was cut short
			failures++
			failure = cmp.Or(failure, err)
			continue
		}
		waits = append(waits, wait)
	}
	return waits, failures, failure
}
