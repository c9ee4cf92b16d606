package otellock

import (
	"context"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

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

// Labels are what tells the series of an instrument apart: comparable values.
type labels interface{ attrs() []attribute.KeyValue }

// series returns the attribute set of labels. Each set is made once, because making one costs more than finding it.
func (o *observer) series(l labels) metric.MeasurementOption {
	set, ok := o.sets.Load(l)
	if !ok {
		set, _ = o.sets.LoadOrStore(l, metric.WithAttributeSet(attribute.NewSet(l.attrs()...)))
	}
	return set.(metric.MeasurementOption)
}

// named are the labels of what is told apart by name alone.
type named string

func (n named) attrs() []attribute.KeyValue {
	if n == "" {
		return nil
	}
	return []attribute.KeyValue{AttrName.String(string(n))}
}

// ended are the labels of operations that have ended. An acquisition or a hold has an instrument of its own.
type ended struct {
	named
	ending
	kind      core.OpKind
	contended bool // of an acquisition
}

func (e ended) attrs() []attribute.KeyValue {
	attrs := append(e.named.attrs(), e.ending.attrs()...)
	switch e.kind {
	case core.OpAcquire:
		attrs = append(attrs, AttrContended.Bool(e.contended))
	case core.OpHold:
	default:
		attrs = append(attrs, AttrOperation.String(e.kind.String()))
	}
	return attrs
}

// A loss is that of a lease.
type loss struct {
	named
	reason string
}

func (l loss) attrs() []attribute.KeyValue {
	return append(l.named.attrs(), AttrErrorType.String(l.reason))
}

// A decision is what an adapter decided.
type decision core.Event

func (d decision) attrs() []attribute.KeyValue {
	return append(named(d.Name).attrs(), AttrSource.String(d.Source), AttrEvent.String(string(d.Kind)))
}

// A node is a Redis server as an observer knows it, also of several Lockers.
type node struct {
	index int
	addr  string
}

func (n node) attrs() []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrNode.String(strconv.Itoa(n.index))}
	if host, port, err := net.SplitHostPort(n.addr); err == nil {
		attrs = append(attrs, AttrAddress.String(host))
		if n, err := strconv.Atoi(port); err == nil {
			attrs = append(attrs, AttrPort.Int(n))
		}
	} else if n.addr != "" {
		attrs = append(attrs, AttrAddress.String(n.addr))
	}
	return attrs
}

// A reply is what a node made of a request.
type reply struct {
	node
	verdict core.Verdict
}

func (r reply) attrs() []attribute.KeyValue {
	return append(r.node.attrs(), AttrVerdict.String(r.verdict.String()))
}
