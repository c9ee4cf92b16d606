package queuelock

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Middleware runs the tasks of asynq servers under leases. It is safe for concurrent use and may serve several servers.
type Middleware struct {
	config
	*shared
	locker *core.Locker
}

// shared is what a Middleware shares with those that With made of it.
type shared struct {
	said    sync.Map     // faults of the wiring, each of which is logged once
	foreign sync.Map     // types of tasks with foreign ids, likewise
	types   atomic.Int32 // how many of them
}

// New returns a Middleware that takes its leases from locker. The caller closes locker after the servers have shut down.
// After the death of a process, its keys stay taken for as long as the TTL of locker. The error names everything that is
// wrong with the arguments.
func New(locker *core.Locker, opts ...Option) (*Middleware, error) {
	m := &Middleware{config{key: noKey, waiters: aQuarter, grace: 2 * time.Minute, retention: 8 * time.Hour}, &shared{}, locker}
	return m.derive(opts)
}

// With returns a Middleware with the options of m and others, for some of the handlers of a server:
//
//	mux.Handle("report:", reports.Middleware(handler))
//
// A server that m was configured for needs no other Configure. WithWaiters must be among the options of New.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	own, err := m.derive(opts)
	if err == nil && own.waiters != m.waiters {
		return nil, errors.New("queuelock: WithWaiters belongs to the whole server, and not to some of its handlers: give it to New")
	}
	return own, err
}

func (m *Middleware) derive(opts []Option) (*Middleware, error) {
	var f faults.List
	own := &Middleware{m.config, m.shared, m.locker}
	faults.Set(&f, &own.config, opts)
	own.check(&f)
	locker, err := m.locker.With(core.Detached(false), core.MaxHold(0), core.Retention(own.retention)) // checks these, too
	f.Check(err != nil, "%w", err)
	f.Check(strings.HasPrefix(m.locker.KeyPrefix(), "asynq:"), "the locker's key prefix, asynq:…, belongs to asynq: choose another (core.WithKeyPrefix)")
	own.locker = locker
	return own, f.Err("queuelock")
}

// complain logs what is wrong with the wiring, unless it has before.
func (m *Middleware) complain(fault string) {
	if _, said := m.said.LoadOrStore(fault, true); !said {
		m.locker.Logger().Error(fault)
	}
}
