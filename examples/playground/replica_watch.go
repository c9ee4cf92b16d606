package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/otel/otellock"
)

// watch returns an observer that measures, as OpenTelemetry has it, and tells the playground.
func (r *replica) watch() (core.Observer, error) {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	r.metrics = reader
	r.stops = append(r.stops, meters.Shutdown)
	measures, err := otellock.New(otellock.WithMeterProvider(meters))
	if err != nil {
		return core.Observer{}, err
	}
	both := measures
	both.Start = func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		ctx, measured := measures.Start(ctx, op)
		ctx, told := r.begins(ctx, op)
		return ctx, func(out core.Outcome) {
			for _, end := range []func(core.Outcome){told, measured} {
				if end != nil {
					end(out)
				}
			}
		}
	}
	both.Node = func(ctx context.Context, kind core.OpKind, reply core.NodeReply) {
		measures.Node(ctx, kind, reply)
		r.heard(reply)
	}
	return both, nil
}

// words are the names under which keys are shown that adapters have made.
var words = map[string]string{core.Key("cron-leader", service): "leader", core.Key("cron", service, "report", "run"): "report"}

func shown(key string) string { return cmp.Or(words[key], key) }

// begins sees operations begin and end.
func (r *replica) begins(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	began, key := time.Now(), shown(op.Key)
	switch {
	case op.Kind == core.OpRenew:
		return ctx, func(out core.Outcome) {
			if out.Err == nil {
				r.renewed(key, op.Token)
			}
		}
	case op.Kind == core.OpAcquire && !op.Try && !composed(key):
		r.waits(key, 1)
		return ctx, func(out core.Outcome) {
			r.waits(key, -1)
			r.waited(key, time.Since(began), out)
		}
	default: // who only tries, does so at each tick
		return ctx, nil
	}
}

// composed reports whether a key was made by core.Key: the adapters have some of their own, for ticks and tasks. Those that
// are shown are words.
func composed(key string) bool { return key != "" && key[0] >= '0' && key[0] <= '9' }

// waited tells of a wait that is over, but not of those that ended with their caller.
func (r *replica) waited(key string, took time.Duration, out core.Outcome) {
	e := Event{Kind: isWait, Key: key, Token: out.Token, Ms: inMillis(took)}
	switch class := core.ClassOf(out.Err); {
	case class == core.ClassHeld, class == core.ClassUnavailable:
		e.Kind, e.Text = isRefused, class.String()
	case class != core.ClassNone, !out.Contended:
		return
	}
	r.say(e)
}

// report says how the replica is doing, a few times a second.
func (r *replica) report(ctx context.Context) {
	for stage.Sleep(ctx, 200*time.Millisecond) == nil {
		r.stats(r.acquisitions(ctx))
	}
}

// acquisitions are those that were granted, as OpenTelemetry counts them.
func (r *replica) acquisitions(ctx context.Context) Histogram {
	var all metricdata.ResourceMetrics
	h := Histogram{}
	if err := r.metrics.Collect(ctx, &all); err != nil && !errors.Is(err, context.Canceled) {
		r.say(Event{Kind: isError, Text: err.Error()})
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			durations, ok := m.Data.(metricdata.Histogram[float64])
			if !ok || m.Name != otellock.MetricAcquireDuration {
				continue
			}
			for _, p := range durations.DataPoints {
				if outcome, _ := p.Attributes.Value(otellock.AttrOutcome); outcome.AsString() == "acquired" {
					h.add(Histogram{p.Bounds, p.BucketCounts})
				}
			}
		}
	}
	return h
}
