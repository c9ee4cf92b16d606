package otellock

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// holds are the leases of a name that are held, in the order in which they began.
type holds struct {
	mu             sync.Mutex
	oldest, newest *operation
	ever           bool // there has been one
}

func (h *holds) add(p *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.older, h.ever = h.newest, true
	if p.older == nil {
		h.oldest = p
	} else {
		p.older.newer = p
	}
	h.newest = p
}

func (h *holds) remove(p *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.older == nil {
		h.oldest = p.newer
	} else {
		p.older.newer = p.newer
	}
	if p.newer == nil {
		h.newest = p.older
	} else {
		p.newer.older = p.older
	}
	p.older, p.newer = nil, nil
}

// age is how long the oldest has been held, 0 if none is; ok is false if none ever was.
func (h *holds) age() (age time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.oldest != nil {
		age = time.Since(h.oldest.began)
	}
	return age, h.ever
}

// registerAges has readers of metrics ask for the ages. An option of the gauge would not do: a meter that has the gauge
// already, from another observer, does not heed it.
func (o *observer) registerAges(m metric.Meter) error {
	_, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		o.names.each(func(s *series) {
			if age, ok := s.holds.age(); ok {
				to.ObserveFloat64(o.in.age, age.Seconds(), s.plain.observe...)
			}
		})
		return nil
	}, o.in.age)
	return err
}
