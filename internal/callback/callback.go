// Package callback calls code of the user's: observers, loggers, and functions that an option sets. Such code may panic,
// block, be slow, or end its goroutine. That costs its own call, and nothing else.
//
// [Call] is for a call that somebody waits for. A panic ends there, and who blocks delays the caller. So the caller holds
// nothing meanwhile that others need: no mutex, no way to a node, no key but its own.
//
// A [Background] is for calls that nobody waits for: what renewals, replies of nodes and timers have to tell. They are made
// on goroutines of their own, one for each [Queue].
//
// The function that a user asks to be run under a lock is no such code: its panic reaches the user, once the lock is released.
package callback

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Call calls f, and reports whether f returned. If f panics, that is logged with the stack, and goes no further.
//
// If f ends its goroutine by runtime.Goexit, as testing.T.FailNow does, that is logged as well, but nothing stops it. So what
// must happen after the call is deferred.
func Call(log *slog.Logger, name string, f func()) (returned bool) {
	defer func() {
		if returned {
			return
		}
		what := recover()
		if what == nil {
			what = "runtime.Goexit"
		}
		log.Error("lockkit: code of the application panicked", "callback", name, "panic", fmt.Sprint(what), "stack", string(debug.Stack()))
	}()
	f()
	return true
}
