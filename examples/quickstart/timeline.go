package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A timeline prints what happens, one line each: time, who, what, details.
type timeline struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newTimeline(out io.Writer) *timeline { return &timeline{out: out, start: time.Now()} }

func (t *timeline) print(who, what, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%6.2fs  %-6s %-9s %s\n", time.Since(t.start).Seconds(), who, what, fmt.Sprintf(format, args...))
}

// A logHandler prints what a contender's Locker logs.
type logHandler struct {
	times *timeline
	who   string
}

func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle prints the node and the reason alone where there is one: lines are short here.
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	text, node, rest := strings.TrimPrefix(r.Message, "lockkit: "), "", ""
	var why slog.Value
	var look func(a slog.Attr) bool
	look = func(a slog.Attr) bool {
		switch {
		case a.Value.Kind() == slog.KindGroup:
			for _, inner := range a.Value.Group() {
				look(inner)
			}
		case a.Key == "node":
			node = " " + a.Value.String()
		case a.Key == "why":
			why = a.Value
		default:
			rest += " " + a.String()
		}
		return true
	}
	r.Attrs(look)
	text = strings.Replace(text, "node", "node"+node, 1)
	if reason := why.String(); why.Any() != nil {
		rest = ": " + reason
	}
	h.times.print(h.who, r.Level.String(), "%s%s", text, rest)
	return nil
}

// Nothing here uses attributes or groups of loggers.
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h logHandler) WithGroup(string) slog.Handler      { return h }

// grouped writes 1763650000123456 as 1,763,650,000,123,456, so that one sees tokens grow.
func grouped(n uint64) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
