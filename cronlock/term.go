package cronlock

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/cronlock/leader"
)

// A membership is the context of a claim in a term of the leader. It ends with the context of the call, and, until the claim
// leaves the term, when the work of the term must stop. Err and Done look at the term, because a context of the term looks at
// the clock: after a pause of the process it knows at once that the leadership is lost.
type membership struct {
	context.Context // that of the call
	cancel          context.CancelCauseFunc
	work            context.Context // that of the term
	unwatch         func() bool
	depart          func()

	mu   sync.Mutex
	left bool
}

// joinTerm enters the term in which this process leads. The error is leader.ErrNotLeader.
func joinTerm(ctx context.Context, e *leader.Elector) (*membership, error) {
	m := &membership{}
	m.Context, m.cancel = context.WithCancelCause(ctx)
	var err error
	m.work, m.depart, err = e.Enter(ctx)
	if err != nil {
		m.cancel(err)
		return nil, err
	}
	m.unwatch = context.AfterFunc(m.work, m.follow)
	return m, nil
}

// follow ends the context if the work of the term must stop.
func (m *membership) follow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left && m.work.Err() != nil {
		m.cancel(context.Cause(m.work))
	}
}

// leave leaves the term. The context then ends with that of the call alone.
func (m *membership) leave() {
	m.follow()
	m.mu.Lock()
	left := m.left
	m.left = true
	m.mu.Unlock()
	if !left {
		m.unwatch()
		m.depart()
	}
}

// end frees what the context has taken.
func (m *membership) end() {
	m.leave()
	m.cancel(nil)
}

// Value also has the values of the term, by which its Elector recognizes its own work.
func (m *membership) Value(key any) any {
	if v := m.Context.Value(key); v != nil {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil
	}
	return m.work.Value(key)
}

func (m *membership) Err() error {
	m.follow()
	return m.Context.Err()
}

func (m *membership) Done() <-chan struct{} {
	m.follow()
	return m.Context.Done()
}
