package nemesis

import (
	"slices"
	"sync"
	"time"
)

// An event is a result that a client received, a decision of the referee, or an action of the program. All processes run
// on one machine, so the times of all events are of one clock.
type event struct {
	At   time.Time
	Kind kind
	By   string `json:",omitempty"` // the process, with the number of its start; empty: the program
	Work string `json:",omitempty"` // the workload; of a fault, its name
	Key  string `json:",omitempty"`
	// Semaphore is the key of the semaphore, if Key is one of its slots.
	Semaphore string        `json:",omitempty"`
	Call      int           `json:",omitempty"` // the number of the call in its process
	Token     uint64        `json:",omitempty"`
	Err       string        `json:",omitempty"` // the class of an error; empty: none
	Asked     time.Time     `json:",omitzero"`  // when the call began
	Until     time.Time     `json:",omitzero"`  // of a lease: when its holder last found its context live
	For       time.Duration `json:",omitempty"` // of a release, its cooldown; of a revocation, how long the holder may go on
	Tick      time.Time     `json:",omitzero"`
	Text      string        `json:",omitempty"`
}

type kind string

const (
	// Reports of clients.
	isReady    kind = "ready"
	isGranted  kind = "granted"  // a lease was granted, and its context was live at At
	isLive     kind = "live"     // the context was live at At; it is not kept, but becomes Until of the grant
	isLost     kind = "lost"     // the context of a lease ended before its holder released it
	isFailed   kind = "failed"   // a call ended without a lease: Err
	isReleased kind = "released" // Release returned: Err
	isDone     kind = "done"     // Once returned nil
	isRevoked  kind = "revoked"  // Revoke returned nil
	isStarted  kind = "started"  // a run of a job began: Key is the job, Tick its time
	isWronged  kind = "wronged"  // the referee refused a holder; its context was still live afterwards

	// A decision of the referee: At is by its clock, Asked is when the client looked at its context, Err says "stale" of a
	// write that was refused.
	isWrote kind = "wrote"

	// Actions of the program.
	isStruck kind = "struck"
	isHealed kind = "healed"
	isForgot kind = "forgot" // a server lost some of its memory, from Asked to At
	isQuiet  kind = "quiet"  // all faults are over
	isStuck  kind = "stuck"  // afterwards, a client was granted nothing for a long time
)

// stale is the error of a write that the referee refused.
const stale = "stale"

// leaseID names a lease.
type leaseID struct {
	by, key string
	token   uint64
}

func (e event) lease() leaseID { return leaseID{e.By, e.Key, e.Token} }

// A record has the events of a part. It is safe for concurrent use.
type record struct {
	mu     sync.Mutex
	events []event
	leases map[leaseID]int // the index of the grant
	more   chan struct{}   // closed and replaced with each event
}

func newRecord() *record {
	return &record{leases: map[leaseID]int{}, more: make(chan struct{})}
}

// add adds an event. The time is now unless the event has one.
func (r *record) add(e event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}

	e.At = e.At.Round(0) // times of other processes have no monotonic part, and all are compared
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind == isLive {
		if i, ok := r.leases[e.lease()]; ok {
			r.events[i].Until = e.At
		}
		return
	}

	if e.Kind == isGranted {
		r.leases[e.lease()] = len(r.events)
		e.Until = e.At
	}

	r.events = append(r.events, e)
	close(r.more)
	r.more = make(chan struct{})
}

// sorted returns the events so far by their times.
func (r *record) sorted() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	return events
}

// next returns the events from the given number on, and a channel that the next event closes.
func (r *record) next(seen int) ([]event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[seen:]), r.more
}
