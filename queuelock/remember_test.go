package queuelock

import (
	"strconv"
	"testing"
)

func TestRememberedAreBounded(t *testing.T) {
	t.Parallel()
	in, over := map[string]bool{}, func(over bool) bool { return over }
	for n := range maxAbsent {
		remember(in, strconv.Itoa(n), true, over)
	}
	if remember(in, "more", false, over); len(in) != 1 {
		t.Errorf("%d are remembered where all but one are over", len(in))
	}
	for n := range 2 * maxAbsent {
		remember(in, strconv.Itoa(n), false, over)
	}
	if len(in) != maxAbsent {
		t.Errorf("%d are remembered, want %d", len(in), maxAbsent)
	}
}
