// Package faults collects what is wrong with the options of a constructor, so that one error names all of it.
package faults

import (
	"errors"
	"fmt"
)

// A List is the faults found so far.
type List []error

// Check notes a fault, if it is one.
func (l *List) Check(wrong bool, format string, args ...any) {
	if wrong {
		*l = append(*l, fmt.Errorf(format, args...))
	}
}

// Err returns an error that names every fault and begins with the name of the package, or nil.
func (l List) Err(pkg string) error {
	if err := errors.Join(l...); err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	return nil
}

// Apply applies options of an interface type that are not nil; one that is nil is a fault.
func Apply[O any](l *List, opts []O, apply func(O)) {
	for _, o := range opts {
		if l.Check(any(o) == nil, "an option is nil"); any(o) != nil {
			apply(o)
		}
	}
}

// Set applies options that are functions and not nil to c; one that is nil is a fault.
func Set[C any, O ~func(*C)](l *List, c *C, opts []O) {
	for _, o := range opts {
		if l.Check(o == nil, "an option is nil"); o != nil {
			o(c)
		}
	}
}
