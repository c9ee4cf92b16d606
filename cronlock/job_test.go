package cronlock

import (
	"context"
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/tick"
)

// A one-time job is asked for once, or given up, and not both: a scheduler that is started again asks for it again.
func TestOneTimeJobIsAskedOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody hears of the refusal
	asks := 0
	claim := func(context.Context) (*tick.Claim, error) { asks++; return nil, ErrMissed }
	x := &extra{job: &Job{Job: &tick.Job{}}, claim: claim, over: make(chan struct{})}
	if _, err := x.Lock(ctx, ""); !errors.Is(err, ErrMissed) || x.withdraw() {
		t.Errorf("asked: %v", err)
	}
	if _, err := x.Lock(ctx, ""); !errors.Is(err, core.ErrDone) || asks != 1 {
		t.Errorf("asked again: %v, %d claims", err, asks)
	}
	x = &extra{job: &Job{Job: &tick.Job{}}, claim: claim, over: make(chan struct{})}
	if !x.withdraw() {
		t.Error("nobody has asked, and it cannot be withdrawn")
	}
	if _, err := x.Lock(ctx, ""); !errors.Is(err, core.ErrDone) || asks != 1 {
		t.Errorf("withdrawn: %v, %d claims", err, asks)
	}
}
