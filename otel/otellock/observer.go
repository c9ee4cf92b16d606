package otellock

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// An observer turns what Lockers do into metrics and spans.
type observer struct {
	threshold time.Duration
	tracer    trace.Tracer // nil if spans go nowhere
	measures  bool         // metrics go somewhere
	in        instruments
	sets      sync.Map // labels → metric.MeasurementOption

	mu      sync.Mutex
	classes map[string]*class

	voting sync.Mutex    // also held while votes are recorded, by code of the SDK: no other call waits for it
	unfit  map[node]bool // nodes that refused to vote when they were asked to
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
)

// A class is what is known of the operations of one name.
type class struct {
	name string
	held map[*operation]struct{} // nil if nothing ever was
}

// class returns the class of a name. The first use of a name starts its losses at 0, so that the first loss is an
// increase.
func (o *observer) class(ctx context.Context, name string) *class {
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
		set, _ = o.sets.LoadOrStore(l, metric.WithAttributeSet(attribute.NewSet(l.attrs()...)))
	}
	return set.(metric.MeasurementOption)
}
