// Package logbook is for tests of what is logged.
package logbook

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Book collects log lines. The zero value is empty, and all methods may be called from any goroutine.
type Book struct {
	mu    sync.Mutex
	lines []string
}

// Logger writes to the book.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Write is for handlers, which write a line at a time.
func (b *Book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(line))
	return len(line), nil
}

// Lines are those so far that have all of parts.
func (b *Book) Lines(parts ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

// Count is how many lines have all of parts.
func (b *Book) Count(parts ...string) int { return len(b.Lines(parts...)) }

// Want demands that n lines have all of parts.
func (b *Book) Want(tb testing.TB, n int, parts ...string) {
	tb.Helper()
	if got := b.Count(parts...); got != n {
		tb.Errorf("%d log lines with %q, want %d:\n%s", got, parts, n, strings.Join(b.Lines(), ""))
	}
}
