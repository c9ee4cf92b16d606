// Package callback calls code of the application: observers, loggers, and functions set by options. Such code may
// panic, block, be slow, or end its goroutine. Only its own call is affected by that.
//
// [Call] makes a call and waits for it. It recovers a panic. If the code blocks, it delays the caller, so the caller
// must not hold anything that others need: no mutex, no lane to a node, no key except its own.
//
// A [Background] makes calls without waiting: reports of renewals, replies of nodes and timers. It makes them on its
// own goroutines, one for each [Queue].
//
// The function that a user runs under a lock is not such code: its panic reaches the user after the lock is released.
package callback

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Call calls f, and reports whether f returned. If f panics, Call recovers the panic and logs it with its stack.
//
// If f ends its goroutine by runtime.Goexit, as testing.T.FailNow does, Call logs that as well, but cannot prevent it.
// So a caller must defer all that must happen after the call.
func Call(log *slog.Logger, name string, f func()) (returned bool) {
	defer func() {
		if returned {
			return
		}
		cause := recover()
		if cause == nil {
			cause = "runtime.Goexit"
		}
		log.Error("lockkit: code of the application panicked",
			"callback", name, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}()

	f()
	return true
}
