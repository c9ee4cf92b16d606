package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// Provision declares nodes that have never been used to be new, so that they vote at once instead of after the
// max TTL. Call it when nodes are set up, before anything locks on them; never for nodes that may have lost
// their memory. It may be called by several processes at once, and again.
//
// A nil error means that every node votes. Any other matches ErrUnavailable, ErrClosed or the cause of ctx:
// nodes that do not vote yet wait for the max TTL, as they would have without, or for another call. Provision
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
		if l.e.isClosing() {
			return fmt.Errorf("lockkit: provision: %w", ErrClosed)
		}
		if err := l.provision(ctx, bucket); err != nil {
			return err
		}
	}
	return nil
}

// provision claims all nodes, and, if all of them are new, declares them so. A node keeps its claim until it
// forgets or grants something, so what all of them said when they were claimed still holds where it is declared.
func (l *Locker) provision(ctx context.Context, bucket int) error {
	claims := make([]any, len(l.e.nodes))
	for i := range claims {
		claims[i] = noMemory
	}
	found, err := l.claim(ctx, bucket, claims, allNodes(len(claims)))
	if err != nil {
		return err
	}
	fresh, faults := l.claimed(found, claims)
	if fresh != 0 && len(faults) == 0 {
		if faults, err = l.declareNew(ctx, bucket, claims, fresh); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("lockkit: provision: %w: %w", ErrUnavailable, errors.Join(faults...))
	}
	return nil
}

// claimed is what the nodes said: those that are new, whose claims it notes, and why none may be declared so, or
// another does not vote.
func (l *Locker) claimed(found []vote, claims []any) (fresh nodeSet, faults []error) {
	var used []string
	for i := range found {
		switch v := &found[i]; {
		case v.verdict == VerdictGranted && v.claim == "":
			used = append(used, l.e.nodes[i].String())
		case v.verdict == VerdictGranted:
		case v.claim != "":
			claims[i] = v.claim
			fresh = fresh.with(i)
		default:
			faults = append(faults, errors.New(v.report(l.e.nodes[i]).String()))
		}
	}
	if fresh == 0 {
		return fresh, faults
	}
	if len(used) > 0 {
		faults = append(faults, fmt.Errorf("in use: %s", strings.Join(used, ", ")))
	}
	if len(faults) > 0 {
		for i := range found {
			if fresh.has(i) {
				faults = append(faults, fmt.Errorf("%v: not declared new: as not all nodes are, it may have forgotten what it granted. It votes by itself after the max TTL", l.e.nodes[i]))
			}
		}
	}
	return fresh, faults
}

// declareNew declares the nodes whose claims these are to be new. faults are of those that still do not vote.
func (l *Locker) declareNew(ctx context.Context, bucket int, claims []any, fresh nodeSet) (faults []error, err error) {
	found, err := l.claim(ctx, bucket, claims, fresh)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if fresh.has(i) && found[i].verdict != VerdictGranted {
			faults = append(faults, errors.New(found[i].report(l.e.nodes[i]).String()))
		}
	}
	return faults, nil
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
		return nil, fmt.Errorf("lockkit: provision: %w", context.Cause(ctx))
	}
	return r.votes, nil
}
