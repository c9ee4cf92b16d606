package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// addHold adds an OpHold to the holds of its class.
func (o *observer) addHold(p *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if p.class.holds == nil {
		p.class.holds = map[*operation]struct{}{}
	}
	p.class.holds[p] = struct{}{}
}

// removeHold removes an OpHold that has ended from the holds of its class.
func (o *observer) removeHold(p *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()

	delete(p.class.holds, p)
}

// holdAges returns the age of the oldest hold of each name, and 0 for a name without a current hold. Names that never
// had a hold are missing.
func (o *observer) holdAges() map[nameLabel]time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()

	ages := map[nameLabel]time.Duration{}
	for name, c := range o.classes {
		if c.holds == nil {
			continue
		}
		var oldest time.Duration
		for p := range c.holds {
			oldest = max(oldest, time.Since(p.started))
		}
		ages[nameLabel(name)] = oldest
	}
	return ages
}

// registerHoldAge makes readers of metrics collect the ages of holds. A callback given as an option of the gauge would
// not do: if another observer has already made the gauge on the same meter, the meter ignores the option.
func (o *observer) registerHoldAge(meter metric.Meter) error {
	observe := func(_ context.Context, to metric.Observer) error {
		for name, age := range o.holdAges() {
			to.ObserveFloat64(o.instruments.holdAge, age.Seconds(), o.series(name))
		}
		return nil
	}
	_, err := meter.RegisterCallback(observe, o.instruments.holdAge)
	return err
}
