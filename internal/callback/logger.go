package callback

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
)

// Logger returns a logger with the handler of log that loses a line if the handler panics, instead of panicking. No
// logger is left to report this, so the first panic is written to standard error, with its stack.
func Logger(log *slog.Logger) *slog.Logger {
	return slog.New(handler{log.Handler(), &sync.Once{}})
}

// A handler recovers the panics of another handler.
type handler struct {
	inner      slog.Handler
	reportOnce *sync.Once // for the report of the first panic; shared with handlers made by WithAttrs and WithGroup
}

// recoverPanic recovers a panic of the function that defers it, and reports the first one.
func (h handler) recoverPanic() {
	cause := recover()
	if cause == nil {
		return
	}
	h.reportOnce.Do(func() {
		fmt.Fprintf(os.Stderr, "lockkit: the logger panicked, and lines are missing: %v\n%s", cause, debug.Stack())
	})
}

// Enabled returns false if the inner handler panics.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer h.recoverPanic()
	return h.inner.Enabled(ctx, level)
}

// Handle returns nil if the inner handler panics.
func (h handler) Handle(ctx context.Context, line slog.Record) (err error) {
	defer h.recoverPanic()
	return h.inner.Handle(ctx, line)
}

// WithAttrs returns h itself if the inner handler panics.
func (h handler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	with = h
	defer h.recoverPanic()
	return handler{h.inner.WithAttrs(attrs), h.reportOnce}
}

// WithGroup returns h itself if the inner handler panics.
func (h handler) WithGroup(name string) (with slog.Handler) {
	with = h
	defer h.recoverPanic()
	return handler{h.inner.WithGroup(name), h.reportOnce}
}
