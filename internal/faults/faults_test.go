package faults

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
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

func TestClip(t *testing.T) {
	for _, n := range []int{0, 1, 199, 200, 201, 5000} {
		for _, letter := range []string{"x", "ä", "…"} {
			text := strings.Repeat(letter, n) + "the reason"
			got := Clip(text)
			if len(got) > 200 || !utf8.ValidString(got) || !strings.HasSuffix(got, "the reason") || len(text) <= 200 && got != text {
				t.Errorf("%d times %s: %d bytes: %q", n, letter, len(got), got)
			}
		}
	}
}
