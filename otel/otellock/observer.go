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

// An observer turns what Lockers do into metrics and spans.
type observer struct {
	threshold  time.Duration
	tracer     trace.Tracer // nil if spans go nowhere
	unmeasured bool         // metrics go nowhere
	in         instruments
	sets       sync.Map // labels → metric.MeasurementOption

	mu      sync.Mutex
	classes map[string]*class
	nodes   map[member]*nodeState
	events  map[decision]bool // those that have a series
	sizes   map[uint64]int    // how many nodes each Locker has
}

// An operation is one that has started.
type operation struct {
	core.Op
	o     *observer
	ctx   context.Context
	began time.Time
	class *class
	level metric.Int64UpDownCounter // that counts it; nil if none does
}

// Names are meant to be few, and nothing else can be many. If names are many, those that come after maxNames others
// are counted together. The SDK would drop series beyond 2000 of an instrument, whatever they count.
const (
	maxNames  = 128
	otherName = "_other"

	// Events have a series for each name and kind. Those that come after maxEvents others are counted under otherName, with
	// their kinds, of which all adapters together have less than a hundred.
	maxEvents = 1900
)

// valid returns a text that exporters can send: OTLP refuses a whole batch if one text in it is not valid UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// exportable makes the texts of attributes valid.
func exportable(attrs []attribute.KeyValue) []attribute.KeyValue {
	for i, a := range attrs {
		if a.Value.Type() == attribute.STRING {
			attrs[i] = a.Key.String(valid(a.Value.AsString()))
		}
	}
	return attrs
}

// A class is what is known of the operations of one name.
type class struct {
	name string
	held map[*operation]struct{} // nil if nothing ever was
}

// class returns the class of a name. The first use of a name starts its losses at 0, so that the first loss is an
// increase.
func (o *observer) class(ctx context.Context, name string) *class {
	name = valid(name)
	o.mu.Lock()
	if name != "" && o.classes[name] == nil && len(o.classes) >= maxNames {
		name = otherName
	}
	c := o.classes[name]
	isNew := c == nil
	if isNew {
		c = &class{name: name}
		o.classes[name] = c
	}
	o.mu.Unlock()
	if isNew {
		for _, reason := range lossReasons {
			o.in.losses.Add(ctx, 0, o.series(loss{named(name), string(reason)}))
		}
	}
	return c
}

// series returns the attribute set of labels. Each set is made once, because making one costs more than finding it.
func (o *observer) series(l labels) metric.MeasurementOption {
	set, ok := o.sets.Load(l)
	if !ok {
		set, _ = o.sets.LoadOrStore(l, metric.WithAttributeSet(attribute.NewSet(exportable(l.attrs())...)))
	}
	return set.(metric.MeasurementOption)
}
