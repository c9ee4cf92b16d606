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
	termCtx         context.Context // that of the term
	stopWatch       func() bool
	leaveTerm       func()

	mu        sync.Mutex
	isOutside bool
}

// joinTerm enters the term in which this process leads. The error is leader.ErrNotLeader.
func joinTerm(ctx context.Context, e *leader.Elector) (*membership, error) {
	m := &membership{}
	m.Context, m.cancel = context.WithCancelCause(ctx)
	var err error
	m.termCtx, m.leaveTerm, err = e.Enter(ctx)
	if err != nil {
		m.cancel(err)
		return nil, err
	}
	m.stopWatch = context.AfterFunc(m.termCtx, m.checkTerm)
	return m, nil
}

// follow ends the context if the work of the term must stop.
func (m *membership) checkTerm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isOutside && m.termCtx.Err() != nil {
		m.cancel(context.Cause(m.termCtx))
	}
}

// leave leaves the term. The context then ends with that of the call alone.
func (m *membership) exitTerm() {
	m.checkTerm()
	m.mu.Lock()
	left := m.isOutside
	m.isOutside = true
	m.mu.Unlock()
	if !left {
		m.stopWatch()
		m.leaveTerm()
	}
}

// end frees what the context has taken.
func (m *membership) close() {
	m.exitTerm()
	m.cancel(nil)
}

// Value also has the values of the term, by which its Elector recognizes its own work.
func (m *membership) Value(key any) any {
	if v := m.Context.Value(key); v != nil {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isOutside {
		return nil
	}
	return m.termCtx.Value(key)
}

func (m *membership) Err() error {
	m.checkTerm()
	return m.Context.Err()
}

func (m *membership) Done() <-chan struct{} {
	m.checkTerm()
	return m.Context.Done()
}
