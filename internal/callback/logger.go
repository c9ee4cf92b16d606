package callback

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
)

// Logger returns a logger that writes where log does, and whose handler may panic: that costs a line. There is no logger to
// say so, so the first panic is written to standard error, with its stack.
func Logger(log *slog.Logger) *slog.Logger {
	return slog.New(handler{log.Handler(), &sync.Once{}})
}

// A handler contains the panics of another.
type handler struct {
	inner      slog.Handler
	reportOnce *sync.Once // that it panics
}

// contain ends a panic of the function that defers it.
func (h handler) recoverPanic() {
	what := recover()
	if what == nil {
		return
	}
	h.reportOnce.Do(func() {
		fmt.Fprintf(os.Stderr, "lockkit: the logger panicked, and lines are missing: %v\n%s", what, debug.Stack())
	})
}

func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer h.recoverPanic()
	return h.inner.Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, line slog.Record) (err error) {
	defer h.recoverPanic()
	return h.inner.Handle(ctx, line)
}

func (h handler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	with = h
	defer h.recoverPanic()
	return handler{h.inner.WithAttrs(attrs), h.reportOnce}
}

func (h handler) WithGroup(name string) (with slog.Handler) {
	with = h
	defer h.recoverPanic()
	return handler{h.inner.WithGroup(name), h.reportOnce}
}
