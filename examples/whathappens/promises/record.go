package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

// An event is something that a process of the service was told or did, or that the program did or saw. All processes run on
// one machine, so the times of all events are of one clock.
type event struct {
	At      time.Time
	Process string `json:",omitempty"` // empty: the program
	Kind    kind
	Op      string        `json:",omitempty"` // which call, run, task or request, by the name that the scene gave it
	Key     string        `json:",omitempty"`
	Token   uint64        `json:",omitempty"`
	Err     string        `json:",omitempty"` // the class of an error; empty: none
	Reason  string        `json:",omitempty"` // of a loss
	Text    string        `json:",omitempty"`
	Status  int           `json:",omitempty"` // of a reply; of a task, how many retries asynq has counted
	Took    time.Duration `json:",omitempty"`
	Tick    time.Time     `json:",omitzero"` // of a run
	Attempt int           `json:",omitempty"`
}

type kind string

const (
	// What processes say.
	isReady    kind = "ready"    // Text is the address of the HTTP server
	isAsked    kind = "asked"    // a call for a key begins
	isGranted  kind = "granted"  // a lease begins
	isLive     kind = "live"     // the context of the lease has not ended
	isEnded    kind = "ended"    // the context of the lease has ended: Err, Reason
	isRefused  kind = "refused"  // a call for a key failed: Err
	isReleased kind = "released" // Release returned
	isComplete kind = "complete" // Complete returned
	isOnce     kind = "once"     // Once returned; Text is "ran" if it called the function
	isLook     kind = "look"     // Err is that of the context of the lease
	isWrite    kind = "write"    // a write to the store, with the lease's token
	isNode     kind = "node"     // what node Status says of Key: Text is its verdict, Token that of the lease there
	isWork     kind = "work"     // a run, task or handler begins its work
	isDone     kind = "done"     // it has ended: Err
	isStream   kind = "stream"   // a write of a streamed response has failed: Err
	isLeader   kind = "leader"
	isLog      kind = "log"
	isLate     kind = "late" // a timer fired so much too late: Took
	isClosed   kind = "closed"
	isIdle     kind = "idle" // nothing of the scene is left in this process

	// What the program does and sees.
	isStruck kind = "struck" // a fault begins; Op names it where a scene has several
	isHealed kind = "healed" // a fault ends
	isReply  kind = "reply"  // an HTTP response; Text is the error of a response that broke off
	isTask   kind = "task"   // asynq shows a task in a new state: Text, Status
)

// A record has the events of a scene.
type record struct{ stage.Events[event] }

// sorted returns the events so far by their times.
func (r *record) sorted() []event {
	events := r.All()
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	return events
}

// save writes events to a file, one a line, and returns its name.
func save(events []event) (string, error) {
	f, err := os.CreateTemp("", "promises-*.jsonl")
	if err != nil {
		return "", err
	}
	out := json.NewEncoder(f)
	for _, e := range events {
		err = errors.Join(err, out.Encode(e))
	}
	return f.Name(), errors.Join(err, f.Close())
}

// classOf names the class of an error: empty for none.
func classOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, core.ErrReleased):
		return "released"
	}
	return cmp.Or(core.ClassOf(err).String(), "other")
}

// reasonOf returns why a lease was lost, if it was.
func reasonOf(err error) string {
	if op, ok := errors.AsType[*core.OpError](err); ok {
		return string(op.Reason)
	}
	return ""
}

// A late watch says when timers of this process fire too late, by which the judge knows a machine that is too slow.
type lateWatch struct{ say func(event) }

const (
	timerPeriod = 20 * time.Millisecond
	lateAbove   = 20 * time.Millisecond
)

func (w lateWatch) run(ctx context.Context) {
	last := time.Now()
	ticks := time.NewTicker(timerPeriod)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		if late := now.Sub(last) - timerPeriod; late > lateAbove {
			w.say(event{At: now, Kind: isLate, Took: late})
		}
		last = now
	}
}
