package otellock

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// An observer turns the operations of Lockers into metrics and spans. Its methods are safe for concurrent use.
type observer struct {
	// Set by New, and not changed afterwards.
	spanThreshold time.Duration
	tracer        trace.Tracer // nil if spans are discarded
	noMetrics     bool         // metrics are discarded
	instruments   instruments

	attributeSets sync.Map // from labels to metric.MeasurementOption

	mu          sync.Mutex        // guards the fields below, the states in nodes, and the holds of every class
	classes     map[string]*class // by name
	nodes       map[lockerNode]*nodeState
	events      map[eventLabels]bool // events that have a series
	lockerSizes map[uint64]int       // number of nodes of each Locker
}

// An operation is an operation in progress. Its fields do not change after start.
type operation struct {
	core.Op
	observer   *observer
	ctx        context.Context
	started    time.Time
	class      *class
	inProgress metric.Int64UpDownCounter // the counter that includes this operation; nil if none does
}

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

// valid replaces invalid UTF-8 in a text: if one text in a batch is invalid, OTLP refuses the whole batch.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// exportable replaces invalid UTF-8 in the texts of attrs, in place.
func exportable(attrs []attribute.KeyValue) []attribute.KeyValue {
	for i, a := range attrs {
		if a.Value.Type() == attribute.STRING {
			attrs[i] = a.Key.String(valid(a.Value.AsString()))
		}
	}
	return attrs
}

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

// series returns the attribute set of l. Each set is made once, because a look-up costs less than making it again.
func (o *observer) series(l labels) metric.MeasurementOption {
	set, ok := o.attributeSets.Load(l)
	if !ok {
		made := attribute.NewSet(exportable(l.attrs())...)
		set, _ = o.attributeSets.LoadOrStore(l, metric.WithAttributeSet(made))
	}
	return set.(metric.MeasurementOption)
}
