package otellock

import (
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// labels distinguish the series of an instrument. Implementations are comparable, because they are keys of
// observer.attributeSets.
type labels interface{ attrs() []attribute.KeyValue }

// series returns the attribute set of l. Each set is made once, because a look-up costs less than making it again.
func (o *observer) series(l labels) metric.MeasurementOption {
	set, ok := o.attributeSets.Load(l)
	if !ok {
		made := attribute.NewSet(exportable(l.attrs())...)
		set, _ = o.attributeSets.LoadOrStore(l, metric.WithAttributeSet(made))
	}
	return set.(metric.MeasurementOption)
}

// A nameLabel is the only label of an instrument with one series per name.
type nameLabel string

func (n nameLabel) attrs() []attribute.KeyValue {
	if n == "" {
		return nil
	}
	return []attribute.KeyValue{AttrName.String(string(n))}
}

// operationLabels are the labels of an operation that has ended. Acquisitions and holds have instruments of their own,
// and so need no AttrOperation.
type operationLabels struct {
	nameLabel
	outcomeLabels
	kind      core.OpKind
	contended bool // OpAcquire only
}

func (l operationLabels) attrs() []attribute.KeyValue {
	attrs := append(l.nameLabel.attrs(), l.outcomeLabels.attrs()...)
	switch l.kind {
	case core.OpAcquire:
		attrs = append(attrs, AttrContended.Bool(l.contended))
	case core.OpHold:
		// no further label
	default:
		attrs = append(attrs, AttrOperation.String(l.kind.String()))
	}
	return attrs
}

// lossLabels are the labels of a lost lease.
type lossLabels struct {
	nameLabel
	reason string
}

func (l lossLabels) attrs() []attribute.KeyValue {
	return append(l.nameLabel.attrs(), AttrErrorType.String(l.reason))
}

// eventLabels are the labels of an event of an adapter.
type eventLabels core.Event

func (l eventLabels) attrs() []attribute.KeyValue {
	return append(nameLabel(l.Name).attrs(), AttrSource.String(l.Source), AttrEvent.String(string(l.Kind)))
}

// nodeLabels are the labels of a node. Lockers with the same address at the same index share its series.
type nodeLabels struct {
	index int
	addr  string
}

func (l nodeLabels) attrs() []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrNode.String(strconv.Itoa(l.index))}
	if l.addr == "" {
		return attrs
	}

	host, port, err := net.SplitHostPort(l.addr)
	if err != nil { // the address has no port, as the path of a Unix socket
		return append(attrs, AttrAddress.String(l.addr))
	}
	attrs = append(attrs, AttrAddress.String(host))

	if number, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, AttrPort.Int(number))
	}
	return attrs
}

// replyLabels are the labels of a node's reply to a request.
type replyLabels struct {
	nodeLabels
	verdict core.Verdict
}

func (l replyLabels) attrs() []attribute.KeyValue {
	return append(l.nodeLabels.attrs(), AttrVerdict.String(l.verdict.String()))
}

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
