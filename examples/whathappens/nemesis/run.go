package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A result has the events of a part and their verdict.
type result struct {
	part
	seed       uint64
	events     []event
	violations []string
	summary    string // of the checker of histories
	saved      string // the file that has the events, if something was violated
	took       time.Duration
}

// clockStep bounds the difference between the wall clock and the monotonic clock over a part.
const clockStep = 20 * time.Millisecond

// runPart plays a part, and judges it. The error says that it could not be played.
func runPart(ctx context.Context, o Options, p part, c *clocks) (result, error) {
	began := time.Now()
	wall := began.Round(0) // the clock by which all processes say when things happened
	s, err := newStand(ctx, o, p, c)
	if err != nil {
		return result{}, err
	}

	defer s.close()

	err = s.play(ctx, draw(s))
	if err == nil {
		s.recover(ctx)
		err = s.dismiss()
	}

	if err != nil {
		name, saved := save(s.record.sorted())
		return result{}, errors.Join(err, saved, fmt.Errorf("the events are in %s", name))
	}

	stepped := time.Since(began) - time.Now().Round(0).Sub(wall)
	if max(stepped, -stepped) > clockStep {
		return result{}, fmt.Errorf("the clock of the machine was set by %v meanwhile, so nothing can be judged", -stepped)
	}

	r := result{part: p, seed: o.Seed, events: s.record.sorted(), took: time.Since(began)}
	r.violations, r.summary = judge(r.events)
	if r.violations != nil {
		r.saved, err = save(r.events)
	}

	return r, err
}
