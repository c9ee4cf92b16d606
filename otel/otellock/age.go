package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// hold notes that an operation holds a lease.
func (o *observer) hold(p *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.class.held == nil {
		p.class.held = map[*operation]struct{}{}
	}
	p.class.held[p] = struct{}{}
}

// unhold notes that it does no more.
func (o *observer) unhold(p *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(p.class.held, p)
}

// ages returns the age of the oldest hold of each name: 0 if nothing is held. Names of which nothing was ever held are
// missing.
func (o *observer) ages() map[named]time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	ages := map[named]time.Duration{}
	for name, c := range o.classes {
		if c.held == nil {
			continue
		}
		var age time.Duration
		for p := range c.held {
			age = max(age, time.Since(p.began))
		}
		ages[named(name)] = age
	}
	return ages
}

// registerAges makes readers of metrics ask for the ages. An option of the gauge would not do: a meter that already has
// the gauge, from another observer, ignores it.
func (o *observer) registerAges(m metric.Meter) error {
	_, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for name, age := range o.ages() {
			to.ObserveFloat64(o.in.age, age.Seconds(), o.series(name))
		}
		return nil
	}, o.in.age)
	return err
}
