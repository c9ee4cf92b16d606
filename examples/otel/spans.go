package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockkit/lockkit/otel/otellock"
)

// A printer prints the spans of locks, one line each.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.InstrumentationScope().Name != otellock.ScopeName {
		return
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s %-17s %7v", s.EndTime().Format("15:04:05.000"), s.Name(), s.EndTime().Sub(s.StartTime()).Round(time.Millisecond))
	for _, a := range s.Attributes() {
		name := strings.TrimPrefix(string(a.Key), "lockkit.")
		fmt.Fprintf(&line, "  %s=%v", name, a.Value.AsInterface())
	}
	for _, l := range s.Links() {
		fmt.Fprintf(&line, "  %s span %s of trace %s…", l.Attributes[0].Value.AsString(), l.SpanContext.SpanID(), l.SpanContext.TraceID().String()[:8])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, line.String())
}

func (*printer) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*printer) Shutdown(context.Context) error                  { return nil }
func (*printer) ForceFlush(context.Context) error                { return nil }
