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
	maxNames     = 256
	maxDecisions = 1024
	maxNodes     = 256
)

// A point is an attribute set in the shapes that instruments take it in.
type point struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func newPoint(attrs ...attribute.KeyValue) point {
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return point{[]metric.RecordOption{set}, []metric.AddOption{set}}
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
	l.mu.RLock()
	v, ok := l.m[key]
	l.mu.RUnlock()
	if ok {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.m[key]; ok {
		return v
	}
	if len(l.m) >= l.limit {
		if l.other == nil {
			v := l.make(key, true)
			l.other = &v
		}
		return *l.other
	}
	if l.m == nil {
		l.m = map[K]V{}
	}
	v = l.make(key, false)
	l.m[key] = v
	return v
}

// A series has the attribute sets of one name.
type series struct {
	attr    []attribute.KeyValue // the name; empty if there is none
	plain   point
	ended   map[ending]point
	acquire [2]map[ending]point // contended: no, yes
	losses  map[string]point    // by reason
	wakes   map[string]point    // by what had a waiter ask
}

func newSeries(name string, other bool) *series {
	s := &series{ended: map[ending]point{}, losses: map[string]point{}, wakes: map[string]point{}}
	switch {
	case other:
		s.attr = []attribute.KeyValue{AttrName.String(otherName)}
	case name != "":
		s.attr = []attribute.KeyValue{AttrName.String(name)}
	}
	with := func(attrs ...attribute.KeyValue) point { return newPoint(append(attrs, s.attr...)...) }
	s.plain = with()
	for _, wake := range []string{wakeTold, wakePolled, wakeLocal} {
		s.wakes[wake] = with(AttrWake.String(wake))
	}
	for contended := range s.acquire {
		s.acquire[contended] = map[ending]point{}
	}
	for _, e := range endings {
		attrs := []attribute.KeyValue{AttrOutcome.String(e.outcome)}
		if e.failure != "" {
			attrs = append(attrs, AttrErrorType.String(e.failure))
		}
		s.ended[e] = with(attrs...)
		if e.outcome == "lost" && e != forgotten {
			s.losses[e.failure] = with(AttrErrorType.String(e.failure))
		}
		for contended := range s.acquire {
			s.acquire[contended][e] = with(append(attrs[:len(attrs):len(attrs)], AttrContended.Bool(contended == 1))...)
		}
	}
	return s
}

// of is the point of an ending.
func (s *series) of(op core.Op, contended bool, e ending) point {
	points := s.ended
	if op.Kind == core.OpAcquire {
		points = s.acquire[0]
		if contended {
			points = s.acquire[1]
		}
	}
	if p, ok := points[e]; ok {
		return p
	}
	return points[failed]
}

// newDecision is the attribute set of what an adapter decided.
func newDecision(e core.Event, other bool) point {
	switch {
	case other:
		return newPoint(AttrSource.String(otherName), AttrDecision.String(otherName))
	case e.Name == "":
		return newPoint(AttrSource.String(e.Source), AttrDecision.String(e.Kind))
	}
	return newPoint(AttrSource.String(e.Source), AttrDecision.String(e.Kind), AttrName.String(e.Name))
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
