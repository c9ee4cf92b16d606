package otellock

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// An observer turns the operations of Lockers into metrics and spans. Its methods are safe for concurrent use.
type observer struct {
	// Set by New, and not changed afterwards.
	spanThreshold time.Duration
	tracer        trace.Tracer // nil if spans are discarded
	noMetrics     bool         // metrics are discarded
	instruments   instruments

	attributeSets sync.Map // from labels to metric.MeasurementOption

	mu          sync.Mutex        // guards the fields below, the states in nodes, and the holds of every class
	classes     map[string]*class // by name
	nodes       map[lockerNode]*nodeState
	events      map[eventLabels]bool // events that have a series
	lockerSizes map[uint64]int       // number of nodes of each Locker
}

// An operation is an operation in progress. Its fields do not change after start.
type operation struct {
	core.Op
	observer   *observer
	ctx        context.Context
	started    time.Time
	class      *class
	inProgress metric.Int64UpDownCounter // the counter that includes this operation; nil if none does
}
