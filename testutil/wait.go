package testutil

import (
	"context"
	"testing"
	"time"
)

// patience is how long a test waits for an event on a busy machine.
const patience = time.Minute

// Await polls until happened returns true, and fails the test if it does not
// within a minute. Use it for events that cannot be received from a channel.
// what names the event in the failure. Await must be called from the test's
// goroutine.
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

// Receive receives a value from c, and fails the test if none comes within a
// minute. So a test fails instead of hanging, also in a bubble whose time never
// stops. Receive must be called from the test's goroutine.
func Receive[T any](tb testing.TB, c <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		tb.Fatal("nothing happened for a minute")
	}
	return v
}
