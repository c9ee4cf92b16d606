package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Provision declares nodes that have never been used to be new, so that they vote at once instead of after the
// max TTL. Call it when nodes are set up, before anything locks on them; never for nodes that may have lost
// their memory. It may be called by several processes at once, and again.
//
// A nil error means that every node votes. Any other matches ErrUnavailable, ErrClosed or the cause of ctx; where the
// deadline of ctx ended it, both of what was known and context.DeadlineExceeded. Nodes that do not answer are asked again
// for as long as a TTL. Nodes that do not vote yet wait for the max TTL, as they would have without, or for another call. Provision
// declares no node new unless every node was reached and none of them has ever granted anything: a node without
// a guard record beside one that is in use, or out of reach, may have forgotten what it granted. Without the
// restart guard it does nothing.
func (l *Locker) Provision(ctx context.Context) error {
	if err := l.fit(ctx); err != nil {
		return err
	}
	if !l.p.guarded {
		return nil
	}
	if !l.e.begin(true) {
		return fmt.Errorf("lockkit: provision: %w", ErrClosed)
	}
	defer l.e.end()
	for bucket := range l.e.guards {
		if err := l.provision(ctx, bucket); err != nil {
			return fmt.Errorf("lockkit: provision: %w", err)
		}
	}
	return nil
}

// provision tries until every node has answered, for as long as a TTL, as acquisitions do.
func (l *Locker) provision(ctx context.Context, bucket int) error {
	since := l.e.clock.now()
	var known error
	for !l.e.isClosing() {
		silent, err := l.provisionOnce(ctx, bucket)
		if ctx.Err() != nil && err != nil {
			return provisionStopped(ctx, known)
		}
		if !silent || l.e.clock.now().since(since) >= l.p.ttl {
			return err
		}
		known = err
		timer := time.NewTimer(l.p.retryMin + time.Duration(l.e.jitter(int64(l.p.retryMax-l.p.retryMin)+1)))
		select {
		case <-timer.C:
		case <-l.e.closing:
		case <-ctx.Done():
		}
		if timer.Stop(); ctx.Err() != nil {
			return provisionStopped(ctx, known)
		}
	}
	return ErrClosed
}

// provisionStopped is the error where ctx has ended: a deadline leaves what was known.
func provisionStopped(ctx context.Context, known error) error {
	if err := ctx.Err(); known != nil && err == context.DeadlineExceeded {
		return fmt.Errorf("%w: %w", err, known)
	}
	return context.Cause(ctx)
}

// provisionOnce claims all nodes, and, if all of them are new, declares them so. A node keeps its claim until it
// forgets or grants something, so what all of them said when they were claimed still holds where it is declared.
// silent reports whether all that it failed for is that nodes did not answer.
func (l *Locker) provisionOnce(ctx context.Context, bucket int) (silent bool, err error) {
	claims := make([]any, len(l.e.nodes))
	for i := range claims {
		claims[i] = noMemory
	}
	found, err := l.claim(ctx, bucket, claims, allNodes(len(claims)))
	if err != nil {
		return false, err
	}
	var s survey
	if fresh := s.claimed(l.e.nodes, found, claims); fresh != 0 && len(s.faults) == 0 {
		if found, err = l.claim(ctx, bucket, claims, fresh); err != nil {
			return false, err
		}
		s.declared(l.e.nodes, found, fresh)
	}
	return s.result()
}

// A survey collects why nodes cannot be declared new.
type survey struct {
	faults   []error
	answered bool // some of them are answers, which asking again would not change
}

// claimed is what the nodes said: those that are new, whose claims it notes, and why none may be declared so, or
// another does not vote.
func (s *survey) claimed(nodes []*node, found []vote, claims []any) (fresh nodeSet) {
	var used []string
	for i := range found {
		switch v := &found[i]; {
		case v.verdict == VerdictGranted && v.claim == "":
			used = append(used, nodes[i].String())
		case v.verdict == VerdictGranted:
		case v.claim != "":
			claims[i] = v.claim
			fresh = fresh.with(i)
		default:
			s.failed(nodes[i], v)
		}
	}
	if fresh == 0 {
		return fresh
	}
	if len(used) > 0 {
		s.answered = true
		s.faults = append(s.faults, fmt.Errorf("in use: %s", strings.Join(used, ", ")))
	}
	if len(s.faults) > 0 {
		for i := range found {
			if fresh.has(i) {
				s.faults = append(s.faults, fmt.Errorf("%v: not declared new: as not all nodes are, it may have forgotten what it granted. It votes by itself after the max TTL", nodes[i]))
			}
		}
	}
	return fresh
}

// declared is what the nodes said that were declared new.
func (s *survey) declared(nodes []*node, found []vote, fresh nodeSet) {
	for i := range found {
		if fresh.has(i) && found[i].verdict != VerdictGranted {
			s.failed(nodes[i], &found[i])
		}
	}
}

func (s *survey) failed(n *node, v *vote) {
	switch v.verdict {
	case VerdictFailed, VerdictTimedOut, VerdictTooLate, VerdictCircuitOpen, VerdictPending:
	default:
		s.answered = true
	}
	s.faults = append(s.faults, errors.New(v.report(n).String()))
}

func (s *survey) result() (silent bool, err error) {
	if len(s.faults) == 0 {
		return false, nil
	}
	return !s.answered, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(s.faults...))
}

// claim asks nodes what they are; those whose claim is given are declared new.
func (l *Locker) claim(ctx context.Context, bucket int, claims []any, to nodeSet) ([]vote, error) {
	longest, _ := l.e.longestLease(&l.p)
	r := round{e: &l.e.ensemble, p: &l.p, bucket: bucket, script: provisionScript, stamped: true, must: true,
		args:    append(provisionScript.args(6, l.e.guards[bucket]), rand.Text(), unstamped, l.p.window.Milliseconds(), longest, l.p.lag.Milliseconds()),
		tail:    func(i int) []any { return []any{claims[i]} },
		decided: func(*round) bool { return false }}
	r.send(ctx, to)
	if !r.wait(ctx) {
		return nil, context.Cause(ctx)
	}
	return r.votes, nil
}
