package otellock

import (
	"net"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// Attribute sets are made once and looked up by what they tell apart, because making one allocates.

// Bounds of what is told apart. They are there for a mistake: a name that is not of low cardinality. The SDK
// has a bound of its own, 2000 per instrument.
const (
	maxNames     = 192 // times the reasons of a loss: below the bound of the SDK
	maxDecisions = 1024
	maxKinds     = 256 // of decisions, once there are that many
	maxNodes     = 256
	maxValues    = 64 // of what core and this package list
)

// A point is an attribute set in the shapes that instruments take it in.
type point struct {
	record  []metric.RecordOption
	add     []metric.AddOption
	observe []metric.ObserveOption
}

func newPoint(attrs ...attribute.KeyValue) point {
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return point{[]metric.RecordOption{set}, []metric.AddOption{set}, []metric.ObserveOption{set}}
}

// A lookup makes a value per key, of at most limit keys; the others share what is made for the zero key.
type lookup[K comparable, V any] struct {
	limit int
	make  func(K, bool) V // the bool: for all others
	mu    sync.RWMutex
	m     map[K]V
	other *V
}

func (l *lookup[K, V]) get(key K) V {
	v, ok := l.find(key)
	if ok {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.other == nil {
		v := l.make(key, true)
		l.other = &v
	}
	return *l.other
}

// find returns the value of a key, unless it is one of the others.
func (l *lookup[K, V]) find(key K) (v V, ok bool) {
	l.mu.RLock()
	v, ok = l.m[key]
	l.mu.RUnlock()
	if ok {
		return v, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok = l.m[key]; ok || len(l.m) >= l.limit {
		return v, ok
	}
	if l.m == nil {
		l.m = map[K]V{}
	}
	v = l.make(key, false)
	l.m[key] = v
	return v, true
}

// each calls f with every value that there is.
func (l *lookup[K, V]) each(f func(V)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, v := range l.m {
		f(v)
	}
	if l.other != nil {
		f(*l.other)
	}
}

// A series has the attribute sets of one name.
type series struct {
	plain  point
	holds  holds
	ended  lookup[ended, point]
	losses lookup[string, point] // by reason
	wakes  lookup[string, point] // by core.Waited
}

// ended is what tells apart operations that have ended.
type ended struct {
	ending
	acquire, contended bool // contended only with acquire
}

func newSeries(name string, other bool) *series {
	var names []attribute.KeyValue
	switch {
	case other:
		names = []attribute.KeyValue{AttrName.String(otherName)}
	case name != "":
		names = []attribute.KeyValue{AttrName.String(name)}
	}
	with := func(attrs ...attribute.KeyValue) point { return newPoint(append(attrs, names...)...) }
	by := func(attr attribute.Key) lookup[string, point] {
		return lookup[string, point]{limit: maxValues, make: func(value string, other bool) point {
			if other {
				value = otherName
			}
			return with(attr.String(value))
		}}
	}
	return &series{plain: with(), losses: by(AttrErrorType), wakes: by(AttrWake), ended: lookup[ended, point]{limit: maxValues, make: func(e ended, other bool) point {
		if other {
			e.ending = failed
		}
		attrs := e.attrs()
		if e.acquire {
			attrs = append(attrs, AttrContended.Bool(e.contended))
		}
		return with(attrs...)
	}}}
}

// pointFor is the point of an operation that has ended.
func (s *series) pointFor(kind core.OpKind, contended bool, e ending) point {
	acquire := kind == core.OpAcquire
	return s.ended.get(ended{e, acquire, acquire && contended})
}

// newDecision is the attribute set of what an adapter decided.
func newDecision(e core.Event, other bool) point {
	switch {
	case other:
		return newPoint(AttrSource.String(otherName), AttrDecision.String(otherName))
	case e.Name == "":
		return newPoint(AttrSource.String(e.Source), AttrDecision.String(string(e.Kind)))
	}
	return newPoint(AttrSource.String(e.Source), AttrDecision.String(string(e.Kind)), AttrName.String(e.Name))
}

// nodeAttrs name a node: one set of values per node.
func nodeAttrs(id nodeID, other bool) []attribute.KeyValue {
	if other {
		return []attribute.KeyValue{AttrNode.String(otherName)}
	}
	attrs := []attribute.KeyValue{AttrNode.String(strconv.Itoa(id.index))}
	if host, port, err := net.SplitHostPort(id.addr); err == nil {
		attrs = append(attrs, AttrAddress.String(host))
		if n, err := strconv.Atoi(port); err == nil {
			attrs = append(attrs, AttrPort.Int(n))
		}
	} else if id.addr != "" {
		attrs = append(attrs, AttrAddress.String(id.addr))
	}
	return attrs
}
