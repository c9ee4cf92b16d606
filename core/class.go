package core

import (
	"context"
	"errors"
)

// A Class is what an error of this package means to whoever has to decide what to do next.
type Class uint8

const (
	ClassNone        Class = iota // no error
	ClassInvalid                  // a key, a result or options that are unfit: mend the program
	ClassClosed                   // the Locker is closed: this process is ending
	ClassDone                     // the key is recorded as completed: nothing is left to do
	ClassHeld                     // somebody else holds the key: skip, or try again
	ClassLost                     // the lease ended before its holder ended it: stop, find out what became of the work
	ClassUnavailable              // no quorum of nodes: alert, try again later
	ClassCancelled                // the caller's context ended, and nothing else is known
	ClassOther                    // none of this package's, such as that of a function given to Do
)

// String returns the class in lower case.
func (c Class) String() string {
	if names := [...]string{"none", "invalid", "closed", "done", "held", "lost", "unavailable", "cancelled", "other"}; int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// ClassOf returns the class of err, whatever it is wrapped in. An error that matches several is of the first of:
// lost, done, held, closed, unavailable, invalid, cancelled. So the loss of a lease counts for more than what its
// holder returned, and what is known of a key for more than the deadline that ended the wait for it.
func ClassOf(err error) Class {
	if err == nil {
		return ClassNone
	}
	for _, c := range classes {
		for _, sentinel := range c.of {
			if errors.Is(err, sentinel) {
				return c.class
			}
		}
	}
	return ClassOther
}

var classes = []struct {
	class Class
	of    []error
}{
	{ClassLost, []error{ErrLost}},
	{ClassDone, []error{ErrDone}},
	{ClassHeld, []error{ErrHeld}},
	{ClassClosed, []error{ErrClosed}},
	{ClassUnavailable, []error{ErrUnavailable}},
	{ClassInvalid, []error{ErrInvalid, ErrReleased}},
	{ClassCancelled, []error{context.Canceled, context.DeadlineExceeded}},
}
