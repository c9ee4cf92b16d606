package fenced

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
)

func done(op core.OpKind, work string) error {
	return &core.OpError{Op: op, Key: work, Err: core.ErrDone, Record: &core.Record{}}
}

// Only the record of the very work of the context, alone, counts.
func TestIsDone(t *testing.T) {
	t.Parallel()
	var locker *core.Locker // without a prefix
	ctx := locker.WithWork(t.Context(), "payment", "1")
	work, _ := core.Work(ctx)
	ofWork := done(core.OpOnce, work)

	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"nil":                    {ctx, nil, false},
		"of the work":            {ctx, ofWork, true},
		"wrapped":                {ctx, fmt.Errorf("booking: %w", ofWork), true},
		"joined with a failure":  {ctx, errors.Join(ofWork, errors.New("mail")), false},
		"of a step":              {ctx, done(core.OpOnce, work+"/4:step/4:mail"), false},
		"of a lock":              {ctx, done(core.OpAcquire, work), false},
		"of other work":          {locker.WithWork(ctx, "payment", "2"), ofWork, false},
		"without an identity":    {locker.WithWork(ctx), done(core.OpOnce, ""), false},
		"an error of the caller": {ctx, core.ErrDone, false},
	} {
		if got := IsDone(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A stale token counts wherever it stands in the tree of errors.
func TestIsStale(t *testing.T) {
	t.Parallel()
	stale := &core.OpError{Op: core.OpCheck, Err: core.ErrLost, Reason: core.LossStale}
	lost := &core.OpError{Op: core.OpHold, Err: core.ErrLost, Reason: core.LossExpired}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                    {nil, false},
		"stale":                  {stale, true},
		"wrapped":                {fmt.Errorf("booking: %w", stale), true},
		"joined after a loss":    {errors.Join(lost, stale), true},
		"among two wrapped ones": {fmt.Errorf("%w: %w", lost, stale), true},
		"lost for another cause": {lost, false},
		"an error of the caller": {core.ErrLost, false},
	} {
		if got := IsStale(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
