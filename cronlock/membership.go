package cronlock

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/core/leader"
)

// A membership is the context of a claim that has entered a term. It ends with the context of the call. Until the claim
// exits the term, it also ends when the work of the term must stop. Err and Done check the context of the term first,
// because that context reads the clock: after a pause of the process it ends at once if the leadership is lost.
type membership struct {
	context.Context // context of the call; cancel also ends it
	cancel          context.CancelCauseFunc
	termCtx         context.Context // context for work of the term
	stopWatch       func() bool     // stops the calls of checkTerm at the end of termCtx
	leaveTerm       func()

	mu        sync.Mutex // guards isOutside
	isOutside bool       // the claim has exited the term
}

// joinTerm enters the term in which this process leads. If it does not lead, the error is leader.ErrNotLeader.
func joinTerm(ctx context.Context, e *leader.Elector) (*membership, error) {
	callCtx, cancel := context.WithCancelCause(ctx)
	termCtx, leaveTerm, err := e.Enter(ctx)
	if err != nil {
		cancel(err)
		return nil, err
	}

	m := &membership{Context: callCtx, cancel: cancel, termCtx: termCtx, leaveTerm: leaveTerm}
	m.stopWatch = context.AfterFunc(m.termCtx, m.checkTerm)
	return m, nil
}

// checkTerm ends the context if the claim is in the term and its work must stop.
func (m *membership) checkTerm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isOutside && m.termCtx.Err() != nil {
		m.cancel(context.Cause(m.termCtx))
	}
}

// exitTerm leaves the term. From then on the context ends only with the context of the call.
func (m *membership) exitTerm() {
	m.checkTerm()

	m.mu.Lock()
	wasOutside := m.isOutside
	m.isOutside = true
	m.mu.Unlock()
	if !wasOutside {
		m.stopWatch()
		m.leaveTerm()
	}
}

// close exits the term and ends the context.
func (m *membership) close() {
	m.exitTerm()
	m.cancel(nil)
}

// Value returns values of the call, and then values of the term: the Elector recognizes its own work by them.
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

// Err checks the term first.
func (m *membership) Err() error {
	m.checkTerm()
	return m.Context.Err()
}

// Done checks the term first.
func (m *membership) Done() <-chan struct{} {
	m.checkTerm()
	return m.Context.Done()
}
