package faults

import (
	"errors"
	"fmt"
	"testing"
)

// A fault that several elements share is reported once. Errors that errors.Is matches are kept.
func TestEachSaysAFaultOnce(t *testing.T) {
	t.Parallel()
	known := errors.New("known")
	wrapped := fmt.Errorf("wraps %w and %w", known, errors.New("another"))
	var l List
	l.AddElements("node", []error{errors.New("a"), nil, errors.Join(errors.New("b"), errors.New("a")), errors.New("a"), wrapped})
	want := "pkg: nodes 0, 2 and 3: a\nnode 2: b\nnode 4: wraps known and another"
	err := l.Err("pkg")
	if err == nil || err.Error() != want || !errors.Is(err, known) {
		t.Errorf("%v\nwant:\n%s", err, want)
	}

	l = nil
	l.AddElements("node", make([]error, 3))
	if err := l.Err("pkg"); err != nil {
		t.Errorf("no fault: %v", err)
	}
}
