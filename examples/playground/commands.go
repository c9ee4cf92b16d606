package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A refusal says why a command makes no sense now.
type refusal string

func (r refusal) Error() string { return string(r) }

var (
	errMalformed = errors.New("there is no such command")
	errEnding    = errors.New("the playground ends")
)

// do does what the page, a scenario or the script wants, and returns when it is done. Commands are done one at a time.
func (p *playground) do(c Command) error {
	p.doing.Lock()
	defer p.doing.Unlock()
	if p.ctx.Err() != nil {
		return errEnding
	}
	if c.Node != nil && (*c.Node < 0 || *c.Node >= nodeCount) || c.Replica != "" && !slices.Contains(replicaNames, c.Replica) {
		return errMalformed
	}
	switch c.Do {
	case "kill":
		return p.kill(c.Replica)
	case "pause":
		return p.pause(c.Replica)
	case "resume":
		return p.resume(c.Replica)
	case "restart":
		return p.restart(c.Replica)
	case "skew":
		return p.skewClock(c.Replica, c.Ms)
	case "burst_http":
		return p.load.burst(c.N, 0)
	case "burst_tasks":
		return p.load.burst(0, c.N)
	case "unsafe":
		return p.setUnsafe(c)
	case "scenario":
		return p.startScenario(c.Name)
	case "reset":
		p.reset()
		return nil
	}
	if c.Node == nil {
		return errMalformed
	}
	return p.doToNode(c, *c.Node)
}

// mostSlow is longer than any request waits.
const mostSlow = 10_000

func (p *playground) doToNode(c Command, i int) error {
	e := Event{Node: &i, Replica: c.Replica}
	switch c.Do {
	case "node_cut":
		if err := p.network.cutOff(i, c.Replica); err != nil {
			return err
		}
		e.Kind = isCut
	case "node_slow":
		if c.Ms <= 0 || c.Ms > mostSlow {
			return fmt.Errorf("%w: slow by %v ms", errMalformed, c.Ms)
		}
		p.network.slowDown(i, duration(c.Ms))
		e.Kind, e.Ms = isSlow, c.Ms
	case "node_mend":
		if err := p.network.mend(i); err != nil {
			return err
		}
		e.Kind, e.Text, e.Replica = isUp, "mended", ""
	default:
		var err error
		if e, err = p.nodes.do(c.Do, i); err != nil {
			return err
		}
	}
	p.tell(e)
	return nil
}

// setUnsafe turns the guard or fencing off, or on again. The guard must be the same in all processes, so all of them start
// anew.
func (p *playground) setUnsafe(c Command) error {
	p.mu.Lock()
	was := p.unsafe
	if c.Guard != nil {
		p.unsafe.Guard = *c.Guard
	}
	if c.Fencing != nil {
		p.unsafe.Fencing = *c.Fencing
	}
	now := p.unsafe
	p.mu.Unlock()
	if was == now {
		return refusal("it is so already")
	}
	p.store.setFencing(!now.Fencing)
	p.tell(Event{Kind: isMode, Text: now.String()})
	if was.Guard == now.Guard {
		return nil
	}
	return errors.Join(p.dismissReplicas(), p.startReplicas())
}

// String says what is off.
func (u Unsafe) String() string {
	switch u {
	case Unsafe{}:
		return "safe"
	case Unsafe{Guard: true}:
		return "the restart guard is off"
	case Unsafe{Fencing: true}:
		return "fencing is off"
	}
	return "the restart guard and fencing are off"
}

// startScenario starts one, of which there is one at a time.
func (p *playground) startScenario(name string) error {
	play := p.scenarios()[name]
	if play == nil {
		return errMalformed
	}
	p.mu.Lock()
	if p.scenario != "" {
		p.mu.Unlock()
		return refusal("scenario " + p.scenario + " is under way")
	}
	p.scenario = name
	p.mu.Unlock()
	p.tell(Event{Kind: isScenario, Key: name, Text: "begins"})
	p.work.Go(func() {
		text := "is over"
		if err := play(p.ctx); err != nil {
			text = err.Error()
		}
		p.mu.Lock()
		p.scenario = ""
		p.mu.Unlock()
		p.tell(Event{Kind: isScenario, Key: name, Text: text, At: millis(time.Now())})
	})
	return nil
}
