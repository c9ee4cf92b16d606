package faults

import (
	"errors"
	"testing"
)

type option interface{ apply(*int) }

type add int

func (a add) apply(n *int) { *n += int(a) }

func TestList(t *testing.T) {
	var l List
	if err := l.Err("pkg"); err != nil {
		t.Fatal(err)
	}
	n, cause := 0, errors.New("cause")
	Apply(&l, []option{add(1), nil, add(2)}, func(o option) { o.apply(&n) })
	l.Check(n != 3, "applied %d", n)
	l.Check(n == 3, "three: %w", cause)
	err := l.Err("pkg")
	if err == nil || err.Error() != "pkg: an option is nil\nthree: cause" || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
