package logbook

import "testing"

func TestBook(t *testing.T) {
	var b Book
	for _, n := range []int{1, 2} {
		b.Logger().Warn("a node is away", "node", n)
	}
	for _, c := range []struct {
		parts []string
		want  int
	}{{nil, 2}, {[]string{"level=WARN"}, 2}, {[]string{"away", "node=2"}, 1}, {[]string{"node=1", "node=2"}, 0}} {
		if got := b.Count(c.parts...); got != c.want {
			t.Errorf("%d lines with %q, want %d", got, c.parts, c.want)
		}
		b.Want(t, c.want, c.parts...)
	}
}
