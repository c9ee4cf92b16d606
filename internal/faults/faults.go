// Package faults collects the faults in the arguments of a constructor, so that one error names all of them.
package faults

import (
	"errors"
	"fmt"
)

// A List has the faults that were found so far.
type List []error

// Check adds a fault if isFault is true.
func (l *List) Check(isFault bool, format string, args ...any) {
	if isFault {
		*l = append(*l, fmt.Errorf(format, args...))
	}
}

// Err returns an error that names every fault and begins with the name of the package, or nil if there is none.
func (l List) Err(pkg string) error {
	if err := errors.Join(l...); err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	return nil
}

// Apply applies options of an interface type. An option that is nil is a fault.
func Apply[O any](l *List, opts []O, apply func(O)) {
	for _, o := range opts {
		// Only a nil interface is nil here: a nil pointer in it is applied.
		isNil := any(o) == nil
		l.Check(isNil, "an option is nil")
		if !isNil {
			apply(o)
		}
	}
}

// Set applies options of a function type to c. An option that is nil is a fault.
func Set[C any, O ~func(*C)](l *List, c *C, opts []O) {
	for _, o := range opts {
		l.Check(o == nil, "an option is nil")
		if o != nil {
			o(c)
		}
	}
}
