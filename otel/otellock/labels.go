package otellock

import (
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
)

// Labels are what tells the series of an instrument apart: comparable values.
type labels interface{ attrs() []attribute.KeyValue }

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
