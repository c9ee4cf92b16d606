package otellock

import "context"

const (
	// Names should be few, and no other label can have many values. Names after the first maxNames are counted
	// together, as otherName. Otherwise the SDK would drop series: it drops every series of an instrument after the
	// first 2000.
	maxNames  = 128
	otherName = "_other"

	// Events have a series for each name and kind. Events after the first maxEvents are counted as otherName with their
	// own kinds. All adapters together have fewer than a hundred kinds, so the series stay below 2000.
	maxEvents = 1900
)

// A class is a group of operations with the same name.
type class struct {
	name  string
	holds map[*operation]struct{} // leases held now; nil if the class never had one
}

// classFor returns the class of a name, which may be the class otherName. A new class starts its loss counters at 0, so
// that the first loss shows as an increase.
func (o *observer) classFor(ctx context.Context, name string) *class {
	c, isNew := o.findOrAddClass(valid(name))
	if isNew {
		for _, reason := range lossReasons {
			o.instruments.losses.Add(ctx, 0, o.series(lossLabels{nameLabel(c.name), string(reason)}))
		}
	}
	return c
}

// findOrAddClass returns the class of a name, and whether the class is new.
func (o *observer) findOrAddClass(name string) (c *class, isNew bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if c := o.classes[name]; c != nil {
		return c, false
	}

	isFull := len(o.classes) >= maxNames
	if isFull && name != "" {
		name = otherName
		if c := o.classes[name]; c != nil {
			return c, false
		}
	}

	c = &class{name: name}
	o.classes[name] = c
	return c, true
}

// limitEvents returns the labels under which an event is counted, and records that they have a series. After the first
// maxEvents, new labels get the name otherName.
func (o *observer) limitEvents(l eventLabels) eventLabels {
	o.mu.Lock()
	defer o.mu.Unlock()

	isFull := len(o.events) >= maxEvents && !o.events[l]
	if isFull && l.Name != "" {
		l.Name = otherName
	}
	o.events[l] = true
	return l
}
