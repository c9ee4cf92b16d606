package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A scenario is a few commands in a row that the guard, or fencing, is for.
type scenario func(context.Context) error

func (p *playground) scenarios() map[string]scenario {
	return map[string]scenario{"guard": again(p.guardScene), "fence": again(p.fenceScene), "chaos": p.chaos}
}

// errTooSlow is that of a scene on a machine that is too busy to be quick enough.
var errTooSlow = errors.New("the machine was too busy for it")

// again tries a scene that has to be quick a few times.
func again(scene scenario) scenario {
	return func(ctx context.Context) (err error) {
		for range 5 {
			if err = scene(ctx); !errors.Is(err, errTooSlow) {
				return err
			}
		}
		return err
	}
}

// guardScene has replica a hold a key, cuts it off from three nodes so that it renews nothing there, and has these restart
// empty: they have forgotten the lease, which is trusted still. Then b asks. With the guard the three nodes do not vote
// until the lease is over.
func (p *playground) guardScene(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTooSlow)
	defer cancel()
	const key = "guarded"
	victims := []int{0, 1, 2}
	defer func() {
		for _, i := range victims {
			p.do(Command{Do: "node_mend", Node: &i})
		}
	}()
	n := p.board.end()
	if err := p.order("a", Order{Do: "update", Key: key, Ms: inMillis(2 * ttl), WaitMs: inMillis(4 * ttl)}); err != nil {
		return err
	}
	grant, err := p.board.await(ctx, n, isOf("a", key, isGrant))
	if err != nil {
		return err
	}
	p.scene("a holds %q; it is cut off from nodes 0, 1 and 2, and these restart without their memory", key)
	if err := p.onEach(victims, "node_cut", "a"); err != nil {
		return err
	}
	if err := p.onEach(victims, "node_restart_empty", ""); err != nil {
		return err
	}
	left := grant.Until - millis(time.Now())
	if left < 500 {
		return errTooSlow
	}
	p.scene("b asks for %q, which a may act on for %.1f s more", key, left/1000)
	n = p.board.end()
	if err := p.order("b", Order{Do: "update", Key: key, Ms: 200, WaitMs: left - 200}); err != nil {
		return err
	}
	answer, err := p.board.await(ctx, n, isOf("b", key, isGrant, isRefused))
	if err != nil {
		return err
	}
	if answer.At >= grant.Until {
		return errTooSlow
	}
	if answer.Kind == isGrant {
		p.scene("b was granted it: two holders at a time")
		return p.awaitViolation(ctx, n)
	}
	p.scene("b is refused: the nodes that forgot do not vote until what they may have forgotten is over")
	_, err = p.board.await(ctx, n, isOf("a", key, isLost, isEnd))
	return err
}

// fenceScene pauses replica a in the middle of an update, for longer than its lease; b updates meanwhile, and then a goes
// on, and writes what it has made of an old value.
func (p *playground) fenceScene(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, errTooSlow)
	defer cancel()
	const key = "fenced"
	n := p.board.end()
	if err := p.order("a", Order{Do: "update", Key: key, Ms: 1000, WaitMs: inMillis(4 * ttl), Stubborn: true}); err != nil {
		return err
	}
	if _, err := p.board.await(ctx, n, isOf("a", key, isWrite)); err != nil { // it has read
		return err
	}
	if err := p.do(Command{Do: "pause", Replica: "a"}); err != nil {
		return err
	}
	defer p.do(Command{Do: "resume", Replica: "a"}) // if it is not
	p.scene("a is paused in the middle of an update of %q; b waits until its lease is over, and updates", key)
	if err := p.order("b", Order{Do: "update", Key: key, Ms: 200, WaitMs: inMillis(4 * ttl)}); err != nil {
		return err
	}
	if _, err := p.board.await(ctx, n, func(e Event) bool { return isOf("b", key, isWrite)(e) && e.Text == "accepted" }); err != nil {
		return err
	}
	p.scene("a goes on, and writes")
	if err := p.do(Command{Do: "resume", Replica: "a"}); err != nil {
		return err
	}
	wrote, err := p.board.await(ctx, n, func(e Event) bool { return isOf("a", key, isWrite)(e) && e.Text != "read" })
	switch {
	case err != nil:
		return err
	case wrote.Text == "accepted": // before b had the key
		return errTooSlow
	case wrote.Text == "refused":
		p.scene("its write is refused: the store has seen a greater token")
		return nil
	}
	p.scene("its write is accepted, and the update of b is lost")
	return p.awaitViolation(ctx, n)
}

// awaitViolation returns when the judge has found one since event n, or before.
func (p *playground) awaitViolation(ctx context.Context, n int) error {
	p.mu.Lock()
	found := p.told
	p.mu.Unlock()
	if found != "" {
		return nil
	}
	_, err := p.board.await(ctx, n, isOf("", "", isVerdict))
	return err
}

// isOf matches events of a replica and a key; "" is any.
func isOf(replica, key string, kinds ...string) func(Event) bool {
	return func(e Event) bool {
		for _, k := range kinds {
			if e.Kind == k && (replica == "" || e.Replica == replica) && (key == "" || e.Key == key) {
				return true
			}
		}
		return false
	}
}

func (p *playground) scene(format string, args ...any) {
	p.tell(Event{Kind: isScene, Text: fmt.Sprintf(format, args...)})
}

// order tells a replica to do something.
func (p *playground) order(name string, o Order) error {
	x, err := p.inState(name, up)
	if err != nil {
		return err
	}
	return x.Tell(o)
}

// onEach does the same to several nodes at a time.
func (p *playground) onEach(nodes []int, do, replica string) error {
	p.doing.Lock()
	defer p.doing.Unlock()
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for at, i := range nodes {
		all.Go(func() { errs[at] = p.doToNode(Command{Do: do, Replica: replica}, i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
