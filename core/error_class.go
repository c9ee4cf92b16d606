package core

import (
	"context"
	"errors"
)

// A Class says how to react to an error of this package.
type Class uint8

const (
	ClassNone        Class = iota // no error
	ClassInvalid                  // a key, a result or options are invalid: fix the program
	ClassClosed                   // the Locker is closed: this process is ending
	ClassDone                     // the key is recorded as completed: nothing is left to do
	ClassHeld                     // the key is held: skip, or try again
	ClassLost                     // the lease ended before its holder ended it: stop, and check the state of the work
	ClassUnavailable              // no quorum of nodes: alert, try again later
	ClassCancelled                // the caller's context ended, and nothing else is known
	ClassOther                    // an error of another package, such as that of a function given to Do
)

// String returns the class in lower case.
func (c Class) String() string {
	return wordAt(c, "none", "invalid", "closed", "done", "held", "lost", "unavailable", "cancelled", "other")
}

// ClassOf returns the class of err, however it is wrapped. If err matches several classes, the first of these counts:
// lost, done, held, closed, unavailable, invalid, cancelled. So the loss of a lease counts for more than the error of
// its holder, and the state of a key for more than the deadline that ended the wait for it.
func ClassOf(err error) Class {
	for _, c := range classTable {
		if errors.Is(err, c.sentinel) {
			return c.class
		}
	}
	return ClassOther
}

// classTable has the class of each sentinel, in the order in which ClassOf tries them.
var classTable = []struct {
	class    Class
	sentinel error
}{
	{ClassNone, nil},
	{ClassLost, ErrLost},
	{ClassDone, ErrDone},
	{ClassHeld, ErrHeld},
	{ClassClosed, ErrClosed},
	{ClassUnavailable, ErrUnavailable},
	{ClassInvalid, ErrInvalid},
	{ClassInvalid, ErrReleased},
	{ClassCancelled, context.Canceled},
	{ClassCancelled, context.DeadlineExceeded},
}

// wordAt returns the word at index k, or "unknown".
func wordAt[K ~uint8](k K, words ...string) string {
	if int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}
