package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A reporter tells the playground what happens in a replica, a line each.
type reporter struct {
	name string

	mu      sync.Mutex
	out     *json.Encoder
	leases  map[held]toldLease // of which the playground knows
	waiting map[string]int     // by key
	took    Histogram          // acquisitions that were granted
	nodes   []NodeStat
}

// A lasting thing is a lease, or a permit.
type lasting interface{ ValidUntil() time.Time }

// A held lock is named as the nodes know it: a slot of a semaphore has a key of its own.
type held struct {
	key   string
	token uint64
}

// A toldLease is one of which the playground knows, by this event's key, slot and token.
type toldLease struct {
	lasting
	as Event
}

func newReporter(name string, out io.Writer) *reporter {
	return &reporter{name: name, out: json.NewEncoder(out), leases: map[held]toldLease{}, waiting: map[string]int{},
		took: newHistogram(), nodes: make([]NodeStat, nodeCount)}
}

// say tells of something that happens now, or has happened at e.At. What it tells of is not over before it is told, so that
// nobody can be granted a key whose end the playground has yet to hear of.
func (r *reporter) say(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(e)
}

func (r *reporter) sayLocked(e Event) {
	e.Replica = r.name
	if e.At == 0 {
		e.At = millis(time.Now())
	}
	r.out.Encode(e) // fails when the playground is dead, and then this process ends as well
}

// holds tells that a lease is held from here until over is called, which says whether it was lost: it was trusted until then,
// or until it ran out if that was before. The event has the key and the slot as the page shows them, and the token; lock is
// the key on the nodes.
func (r *reporter) holds(lock string, as Event, l lasting) (over func(lost error)) {
	id := held{lock, as.Token}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[id] = toldLease{l, as}
	grant := as
	grant.Kind, grant.Until = isGrant, millis(l.ValidUntil())
	r.sayLocked(grant)
	return func(lost error) {
		e := as
		e.Kind = isEnd
		if lost != nil {
			e.Kind, e.Text, e.At = isLost, lossOf(lost), min(millis(time.Now()), millis(l.ValidUntil()))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.leases, id)
		r.sayLocked(e)
	}
}

// holdsIn is holds of the lease under which ctx runs; its loss is told as it happens.
func (r *reporter) holdsIn(ctx context.Context) (over func()) {
	lease, _ := core.FromContext(ctx)
	end := r.holds(lease.Key(), Event{Key: shown(lease.Key()), Token: lease.FencingToken()}, lease)
	over = sync.OnceFunc(func() { end(lease.Lost()) })
	context.AfterFunc(lease.Context(), over)
	return over
}

func lossOf(err error) string {
	if op, ok := errors.AsType[*core.OpError](err); ok {
		return string(op.Reason)
	}
	return err.Error()
}

// renewed tells until when a lease is trusted now.
func (r *reporter) renewed(lock string, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease, ok := r.leases[held{lock, token}]; ok {
		e := lease.as
		e.Kind, e.Until = isRenew, millis(lease.ValidUntil())
		r.sayLocked(e)
	}
}

// waits counts those who wait for a key.
func (r *reporter) waits(key string, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[key] += more; r.waiting[key] == 0 {
		delete(r.waiting, key)
	}
}

// granted counts an acquisition.
func (r *reporter) granted(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took.count(took)
}

// heard keeps what a node last said.
func (r *reporter) heard(n core.NodeReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.nodes[n.Node]
	s.Verdict, s.RestMs = n.Verdict.String(), 0
	if n.Verdict == core.VerdictQuarantined {
		s.RestMs = inMillis(n.Remaining)
	}
	if n.Verdict != core.VerdictCircuitOpen {
		s.Ms += (inMillis(n.Latency) - s.Ms) / 8
	}
}

// stats says how the replica is doing.
func (r *reporter) stats() {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := slices.Sorted(maps.Keys(r.waiting))
	if waiting == nil {
		waiting = []string{}
	}
	r.sayLocked(Event{Kind: isStats, Stats: &Stats{Waiting: waiting, Nodes: r.nodes, Wait: r.took}})
}
