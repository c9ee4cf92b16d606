package testutil

import (
	"context"
	"testing"
	"time"
)

// patience is how long a test waits for what a busy machine does late.
const patience = time.Minute

// Await waits for an event that nobody announces, and fails the test if it
// does not come within a minute. It is to be called from the test's goroutine.
func Await(tb testing.TB, what string, happened func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for !happened() {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			tb.Fatalf("never: %s", what)
		}
	}
}

// Receive waits for c, and fails the test if nothing comes within a minute: in
// a bubble whose time runs on for ever, and elsewhere on a busy machine. It is
// to be called from the test's goroutine.
func Receive[T any](tb testing.TB, c <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		tb.Fatal("nothing happened for a minute")
	}
	return v
}
