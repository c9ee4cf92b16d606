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
	of   slog.Handler
	said *sync.Once // that it panics
}

// contain ends a panic of the function that defers it.
func (h handler) contain() {
	what := recover()
	if what == nil {
		return
	}
	h.said.Do(func() {
		fmt.Fprintf(os.Stderr, "lockkit: the logger panicked, and lines are missing: %v\n%s", what, debug.Stack())
	})
}

func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer h.contain()
	return h.of.Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, line slog.Record) (err error) {
	defer h.contain()
	return h.of.Handle(ctx, line)
}

func (h handler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	with = h
	defer h.contain()
	return handler{h.of.WithAttrs(attrs), h.said}
}

func (h handler) WithGroup(name string) (with slog.Handler) {
	with = h
	defer h.contain()
	return handler{h.of.WithGroup(name), h.said}
}
