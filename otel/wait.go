package otellock

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
)

// How callers wait for their turn: in a line in their process, and its head in the key's queue on the nodes.

// wakeOf is how the turn of a caller came that was granted a lock; empty where it did not have to wait for it.
func wakeOf(out core.Outcome) string {
	switch {
	case out.Err != nil:
		return ""
	case out.HandedOver:
		return wakeTold
	case out.Place > 0 || out.Woken > 0 || out.Polled > 0:
		return wakePolled
	case out.LocalWait > 0:
		return wakeLocal
	}
	return ""
}

// finishWait books what an acquisition went through, however it ended.
func (p *operation) finishWait(ctx context.Context, out core.Outcome) {
	in := &p.o.in
	if wake := wakeOf(out); wake != "" {
		in.handoffs.Add(ctx, 1, p.s.wakes.get(wake).add...)
	}
	if out.Place > 0 {
		in.queue.Record(ctx, int64(out.Place), p.s.plain.record...)
	}
	if out.Woken > 0 {
		in.wakeups.Add(ctx, int64(out.Woken), p.s.wakes.get(wakeTold).add...)
	}
	if out.Polled > 0 {
		in.wakeups.Add(ctx, int64(out.Polled), p.s.wakes.get(wakePolled).add...)
	}
}

// appendWait adds the attributes of a span for what there was of that.
func appendWait(attrs []attribute.KeyValue, out core.Outcome) []attribute.KeyValue {
	if out.Place > 0 {
		attrs = append(attrs, AttrPlace.Int(out.Place))
	}
	if out.Woken > 0 {
		attrs = append(attrs, AttrWoken.Int(out.Woken))
	}
	if out.Polled > 0 {
		attrs = append(attrs, AttrPolled.Int(out.Polled))
	}
	if out.HandedOver {
		attrs = append(attrs, AttrHandedOver.Bool(true))
	}
	return attrs
}
