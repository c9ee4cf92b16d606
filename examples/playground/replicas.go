package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

var replicaNames = []string{"a", "b", "c"}

// A process is a replica as the playground sees it. What changes is guarded by the playground's lock.
type process struct {
	*stage.Child
	life string // of this process: a-3 is the third of replica a

	is     string // up, down or paused
	since  time.Time
	asked  bool    // to end
	ready  bool    // it has said where it serves
	addr   string  // there
	heard  float64 // the latest that it has told of
	leader bool
	stats  Stats
}

// startReplica starts a process and returns when it is ready, or has failed.
func (p *playground) startReplica(name string) error {
	p.mu.Lock()
	p.lives++
	x := &process{life: fmt.Sprintf("%s-%d", name, p.lives), is: up, heard: millis(time.Now())}
	told, err := json.Marshal(role{Name: name, Nodes: p.network.urls(name), Queue: p.queue.addr, Store: p.store.addr,
		Guard: !p.unsafe.Guard, Skew: duration(p.skew[name])})
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.queue.orphan()
	ready := make(chan struct{})
	x.Child, err = stage.Start(func(stdout io.Reader) { p.listen(name, x, stdout, ready) }, roleEnv+"="+string(told))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.replicas[name] = x
	p.mu.Unlock()
	select {
	case <-ready:
		p.tell(Event{Kind: isStarted, Replica: name})
		return nil
	case <-x.Gone():
		return fmt.Errorf("replica %s did not start: %w", name, errors.Join(x.Wait(), errEnded))
	case <-time.After(patience):
		x.Kill()
		return fmt.Errorf("replica %s did not start in %v", name, patience)
	}
}

var errEnded = errors.New("its process ended")

// patience is how long to wait for what should come within seconds.
const patience = 20 * time.Second

// listen hears what a replica tells until its end.
func (p *playground) listen(name string, x *process, stdout io.Reader, ready chan<- struct{}) {
	var e Event
	for lines := json.NewDecoder(stdout); lines.Decode(&e) == nil; e = (Event{}) { // the last line may be cut off
		if p.hear(x, e) {
			close(ready)
		}
	}
	p.mu.Lock()
	asked := x.asked
	p.mu.Unlock()
	if !asked {
		p.isOver(name, x, isKilled, "it ended by itself")
	}
}

// hear takes what a replica tells, and reports whether it is ready now.
func (p *playground) hear(x *process, e Event) (ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.heard = max(x.heard, e.At)
	switch e.Kind {
	case isStats:
		x.stats = *e.Stats
		return false
	case isReady:
		ready, x.ready, x.addr = !x.ready, true, e.Text
		return ready
	case isElected:
		x.leader = true
	case isDeposed:
		x.leader = false
	}
	p.tellLocked(x.life, e)
	return false
}

// isOver notes the end of a process.
func (p *playground) isOver(name string, x *process, kind, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.is, x.leader, x.stats.Waiting, x.ready = down, false, nil, false
	p.past.add(x.stats.Wait)
	x.stats.Wait = Histogram{}
	p.tellLocked(x.life, Event{Kind: kind, Replica: name, Text: why})
}

// inState returns the process of a replica if it is in one of some states.
func (p *playground) inState(name string, states ...string) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.replicas[name]
	if x == nil {
		return nil, errMalformed
	}
	if slices.Contains(states, x.is) {
		return x, nil
	}
	return nil, refusal(fmt.Sprintf("replica %s is %s", name, x.is))
}

// settling is how long after a pause a replica may be heard of what it told before.
const settling = time.Second

// silent reports whether nothing is to be heard of a replica any more.
func (x *process) silent() bool {
	return x.is == down || x.is == paused && time.Since(x.since) > settling
}

func (p *playground) set(x *process, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.is, x.since = state, time.Now()
}

func (p *playground) askToEnd(x *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.asked = true
}

func (p *playground) kill(name string) error {
	x, err := p.inState(name, up, paused)
	if err != nil {
		return err
	}
	p.askToEnd(x)
	x.Kill()
	p.isOver(name, x, isKilled, "")
	return nil
}

// dismiss has a replica shut down.
func (p *playground) dismiss(name string) error {
	x, err := p.inState(name, up, paused)
	if err != nil {
		return err
	}
	if x.is == paused {
		x.Resume()
		p.set(x, up)
	}
	p.askToEnd(x)
	x.Dismiss()
	select {
	case <-x.Gone():
		err = x.Wait()
	case <-time.After(patience):
		err = errors.Join(fmt.Errorf("replica %s did not shut down", name), x.Kill())
	}
	p.isOver(name, x, isLeft, "")
	return err
}

func (p *playground) pause(name string) error {
	x, err := p.inState(name, up)
	if err != nil {
		return err
	}
	if err := x.Pause(); err != nil {
		return unsupported(err)
	}
	p.set(x, paused)
	p.tell(Event{Kind: isPaused, Replica: name})
	return nil
}

func (p *playground) resume(name string) error {
	x, err := p.inState(name, paused)
	if err != nil {
		return err
	}
	p.tell(Event{Kind: isResumed, Replica: name})
	p.set(x, up)
	return x.Resume()
}

// restart starts a replica that is down, and another one once more.
func (p *playground) restart(name string) error {
	if _, err := p.inState(name, up, paused); err == nil {
		if err := p.dismiss(name); err != nil {
			return err
		}
	} else if errors.Is(err, errMalformed) {
		return err
	}
	return p.startReplica(name)
}

// mostSkew is further off than any clock that a job still runs by.
const mostSkew = time.Hour

// skewClock moves the clock of a replica's scheduler.
func (p *playground) skewClock(name string, ahead float64) error {
	if math.Abs(ahead) > inMillis(mostSkew) {
		return fmt.Errorf("%w: a clock that is off by more than %v", errMalformed, mostSkew)
	}
	x, err := p.inState(name, up, down, paused)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.skew[name] = ahead
	is := x.is
	p.mu.Unlock()
	p.tell(Event{Kind: isSkewed, Replica: name, Ms: ahead})
	if is == down {
		return nil // it is told when it starts
	}
	return x.Tell(Order{Do: "skew", Ms: ahead})
}
