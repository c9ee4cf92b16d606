// Package logbook collects log lines in tests.
package logbook

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Book collects log lines. The zero value is empty and ready for use. It is safe for concurrent use.
type Book struct {
	mu    sync.Mutex // guards lines
	lines []string
}

// Logger returns a logger that writes to the book.
func (b *Book) Logger() *slog.Logger {
	handler := slog.NewTextHandler(b, nil)
	return slog.New(handler)
}

// Write adds a line. A handler of package slog calls it once for each line.
func (b *Book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.lines = append(b.lines, string(line))
	return len(line), nil
}

// Lines returns the lines that contain all of parts.
func (b *Book) Lines(parts ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, line := range b.lines {
		isMissing := func(part string) bool { return !strings.Contains(line, part) }
		if !slices.ContainsFunc(parts, isMissing) {
			found = append(found, line)
		}
	}
	return found
}

// Count returns the number of lines that contain all of parts.
func (b *Book) Count(parts ...string) int {
	return len(b.Lines(parts...))
}

// Want reports a test failure unless n lines contain all of parts.
func (b *Book) Want(tb testing.TB, n int, parts ...string) {
	tb.Helper()

	if got := b.Count(parts...); got != n {
		tb.Errorf("%d log lines with %q, want %d:\n%s", got, parts, n, strings.Join(b.Lines(), ""))
	}
}
