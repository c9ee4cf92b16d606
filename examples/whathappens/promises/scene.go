package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A scene is a fault, and what is done before, meanwhile and afterwards so that its promises can be seen.
type scene struct {
	name    string
	takes   time.Duration // about
	forgets bool          // a quorum of nodes loses its memory, and with it records of starts
	play    func(*play) error
	rows    []*row // the rows of the document that it shows
}

// A play is a scene that is played. The error of its methods says that it could not be played, which is no verdict.
type play struct {
	*world
	*client
	ctx   context.Context
	n     int             // of the play: keys of different plays are different
	alone map[string]bool // see referee
	work  sync.WaitGroup  // of what goes on beside the scene
}

// key returns a name that no other play uses.
func (p *play) key(name string) string { return fmt.Sprintf("%s-%d", name, p.n) }

func (p *play) sleep(d time.Duration) error { return stage.Sleep(p.ctx, d) }

// settle lets a lease be renewed at least once, and ends at a random point between two renewals.
func (p *play) settle() error {
	return p.sleep(3700*time.Millisecond + time.Duration(p.random.Int64N(int64(3500*time.Millisecond))))
}

// coin is true every other time.
func (p *play) coin() bool { return p.random.IntN(2) == 0 }

func (p *play) strikes(fault string) { p.world.add(event{Kind: isStruck, Op: fault}) }

func (p *play) heals(fault string) { p.world.add(event{Kind: isHealed, Op: fault}) }

// background runs until it returns or the scene ends.
func (p *play) background(do func(ctx context.Context)) { p.work.Go(func() { do(p.ctx) }) }

// request sends a request in the background.
func (p *play) request(of call) { p.background(func(ctx context.Context) { p.client.do(ctx, of) }) }

// await returns the first event that matches, or an error if none comes in time.
func (p *play) await(what string, limit time.Duration, match filter) (event, error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	e, err := p.record().Wait(ctx, match)
	if err != nil {
		return event{}, fmt.Errorf("%s: %w", what, err)
	}
	return e, nil
}

// see waits for an event of which a promise says that it comes; that it does not come is for the judge to say.
func (p *play) see(limit time.Duration, match filter) {
	_, _ = p.await("", limit, match)
}

// holds makes a process acquire a key, and returns when it has it.
func (p *play) holds(process, op, key string, more ...func(*order)) error {
	o := order{Do: acquire, Op: op, Key: key}
	for _, change := range more {
		change(&o)
	}
	if err := p.tell(process, o); err != nil {
		return err
	}
	_, err := p.await(op+" has its key", patience, is(isGranted, op))
	return err
}

// orders gives orders to a process, one after the other, without waiting for them.
func (p *play) orders(process string, all ...order) error {
	for _, o := range all {
		if err := p.tell(process, o); err != nil {
			return err
		}
	}
	return nil
}

// everybody gives an order to all processes.
func (p *play) everybody(o order) error {
	for _, name := range names {
		if err := p.tell(name, o); err != nil {
			return err
		}
	}
	return nil
}

// inOrder does one thing after the other, until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
