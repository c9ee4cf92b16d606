package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A playground is everything: nodes, the network before them, replicas, what these share, and who watches them.
type playground struct {
	nodes   *nodes
	network *network
	queue   *queue
	store   *store
	load    *load
	board   *board

	began time.Time
	ctx   context.Context // ends with the playground
	end   context.CancelFunc
	work  sync.WaitGroup

	doing sync.Mutex // one command at a time

	mu       sync.Mutex // guards what is below
	replicas map[string]*process
	lives    int
	skew     map[string]float64 // of clocks, in ms
	unsafe   Unsafe
	scenario string // that is under way
	judge    judge
	told     string // of the verdict
	tally    tally
	past     Histogram // of processes that have ended
	endsAt   float64   // when it has played by itself; 0 = with Ctrl-C
}

// newPlayground starts everything. The caller must close it.
func newPlayground(ctx context.Context, off Unsafe) (*playground, error) {
	p := &playground{began: time.Now(), board: newBoard(), replicas: map[string]*process{}, skew: map[string]float64{}, unsafe: off}
	p.tally.forgotten = func(since time.Time) bool { return p.nodes.forgotten(since) }
	p.ctx, p.end = context.WithCancel(ctx)
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *playground) start() (err error) {
	if p.nodes, err = newNodes(); err != nil {
		return err
	}
	// The nodes are known to be new: without this they would sit out the quarantine of the restart guard.
	if err := stage.Provision(p.ctx, p.nodes.all.URLs(), lockerOptions(true)...); err != nil {
		return err
	}
	if p.network, err = newNetwork(replicaNames, p.nodes.all.Addrs); err != nil {
		return err
	}
	if p.queue, err = startQueue(); err != nil {
		return err
	}
	if p.store, err = startStore(p.tell); err != nil {
		return err
	}
	p.store.setFencing(!p.unsafe.Fencing)
	if err := p.startReplicas(); err != nil {
		return err
	}
	p.load = startLoad(p)
	p.work.Go(p.look)
	p.work.Go(p.sweep)
	return nil
}

// startReplicas starts all of them at once.
func (p *playground) startReplicas() error {
	errs := make([]error, len(replicaNames))
	var all sync.WaitGroup
	for i, name := range replicaNames {
		all.Go(func() { errs[i] = p.startReplica(name) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// dismissReplicas has those shut down that run, all at once.
func (p *playground) dismissReplicas() error {
	errs := make([]error, len(replicaNames))
	var all sync.WaitGroup
	for i, name := range replicaNames {
		if _, err := p.inState(name, up, paused); err == nil {
			all.Go(func() { errs[i] = p.dismiss(name) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// close ends everything, also what was started in part.
func (p *playground) close() error {
	p.end()
	func() {
		p.doing.Lock() // a command under way comes to its end, and no other begins
		defer p.doing.Unlock()
	}()
	p.work.Wait()
	if p.load != nil {
		p.load.wait()
	}
	err := p.dismissReplicas()
	if p.store != nil {
		p.store.close()
	}
	if p.queue != nil {
		p.queue.close()
	}
	if p.network != nil {
		p.network.close()
	}
	if p.nodes != nil {
		p.nodes.all.Close()
	}
	return err
}

// setEnd sets when the playground ends by itself.
func (p *playground) setEnd(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endsAt = millis(at)
}

// tell notes what happens.
func (p *playground) tell(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellLocked("", e)
}

// tellLocked is tell of a process, with the lock held.
func (p *playground) tellLocked(life string, e Event) {
	if e.At == 0 {
		e.At = millis(time.Now())
	}
	p.judge.see(life, e)
	if wrong := p.tally.see(e); wrong != "" {
		p.judge.fault(wrong)
	}
	p.board.add(e)
}

// lookEvery is how often the state is made anew, and judged.
const lookEvery = 500 * time.Millisecond

func (p *playground) look() {
	for stage.Sleep(p.ctx, lookEvery) == nil {
		state, err := json.Marshal(p.state())
		if err != nil {
			panic(err) // of numbers and strings
		}
		p.board.post(state)
	}
}

// settled is until when everything has been heard of. All replicas say something a few times a second, in order.
func (p *playground) settled() float64 {
	until := millis(time.Now())
	for _, x := range p.replicas {
		if !x.silent() {
			until = min(until, x.heard)
		}
	}
	return until
}

// judgeNow looks whether anything is wrong, and tells if so. It is called with the lock held.
func (p *playground) judgeNow() {
	p.judge.check(p.settled())
	if p.tally.LostWith > 0 {
		p.judge.fault(fmt.Sprintf("updates lost under the lock: %d", p.tally.LostWith))
	}
	if p.told != p.judge.found {
		p.told = p.judge.found
		p.board.add(Event{At: millis(time.Now()), Kind: isVerdict, Text: p.told})
	}
}

// reset forgets violations.
func (p *playground) reset() {
	p.store.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge.reset()
	p.tally.StaleAccepted, p.tally.Again = 0, 0
	p.told = ""
	p.board.add(Event{At: millis(time.Now()), Kind: isVerdict})
}
