package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// at returns the instant that is s seconds after the beginning of the made-up histories.
func at(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }

// rules returns the rules that err reports as violated, sorted and without duplicates.
func rules(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a joined error: %v", err)
	}
	var rs []string
	for _, e := range joined.Unwrap() {
		var v violation
		if !errors.As(e, &v) {
			t.Fatalf("not a violation: %v", e)
		}
		rs = append(rs, v.rule)
	}
	slices.Sort(rs)
	return slices.Compact(rs)
}

func TestHistoryRules(t *testing.T) {
	tests := []struct {
		name string
		make func(h *History)
		want []string
	}{
		{"empty", func(h *History) {}, nil},
		{"handover at one instant", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 1, at(1))
			h.Granted("k", "b", 2, at(1))
			h.Ended("k", "b", 2, at(1))
			h.Granted("k", "a", 3, at(1))
		}, nil},
		{"ends told late and out of order", func(h *History) {
			h.Granted("k", "b", 2, at(5))
			h.Lost("k", "a", 1, at(5))
			h.Granted("k", "a", 1, at(0))
		}, nil},
		{"the earliest end counts", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 1, at(9))
			h.Lost("k", "a", 1, at(5))
			h.Granted("k", "b", 2, at(6))
		}, nil},
		{"keys are independent", func(h *History) {
			h.Granted("k", "a", 2, at(0))
			h.Granted("l", "b", 1, at(1))
		}, nil},
		{"lease over before it was told", func(h *History) {
			h.Attempt("k", "a", at(0))
			h.Granted("k", "a", 1, at(2))
			h.Lost("k", "a", 1, at(1))
			h.Granted("k", "b", 2, at(1))
		}, nil},

		{"overlap", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Granted("k", "b", 2, at(4))
			h.Ended("k", "a", 1, at(5))
		}, []string{ruleOverlap}},
		{"overlap with a lease never ended", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Granted("k", "b", 2, at(99))
		}, []string{ruleOverlap}},
		{"overlap with a long lease behind a short one", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 1, at(9))
			h.Granted("k", "b", 2, at(1))
			h.Ended("k", "b", 2, at(2))
			h.Granted("k", "c", 3, at(3))
			h.Ended("k", "c", 3, at(4))
		}, []string{ruleOverlap}},
		{"empty lease within another", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 1, at(9))
			h.Granted("k", "b", 2, at(4))
			h.Ended("k", "b", 2, at(4))
		}, []string{ruleOverlap}},

		{"smaller token", func(h *History) {
			h.Granted("k", "a", 2, at(0))
			h.Ended("k", "a", 2, at(1))
			h.Granted("k", "b", 1, at(2))
		}, []string{ruleOrder}},
		{"smaller token of a marked attempt", func(h *History) {
			h.Granted("k", "a", 2, at(0))
			h.Attempt("k", "b", at(0)) // the same instant, but after the report
			h.Ended("k", "a", 2, at(1))
			h.Granted("k", "b", 1, at(2))
		}, []string{ruleOrder}},
		{"only the latest mark counts", func(h *History) {
			h.Attempt("k", "b", at(0))
			h.Granted("k", "a", 2, at(1))
			h.Ended("k", "a", 2, at(2))
			h.Attempt("k", "b", at(3))
			h.Granted("k", "b", 1, at(4))
		}, []string{ruleOrder}},
		{"smaller token of an attempt that began before", func(h *History) {
			h.Attempt("k", "b", at(0))
			h.Granted("k", "a", 2, at(1))
			h.Ended("k", "a", 2, at(2))
			h.Granted("k", "b", 1, at(3))
		}, []string{ruleLinear}},
		{"duplicate token", func(h *History) {
			h.Attempt("k", "b", at(0))
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 1, at(1))
			h.Granted("k", "b", 1, at(1))
		}, []string{ruleDuplicate}},

		{"writes in order, zombie refused", func(h *History) {
			h.Wrote("k", 1, at(0), true)
			h.Wrote("k", 2, at(1), true)
			h.Wrote("k", 1, at(2), false)
			h.Wrote("k", 2, at(3), true)
		}, nil},
		{"zombie write accepted", func(h *History) {
			h.Wrote("k", 2, at(0), true)
			h.Wrote("k", 1, at(1), true)
		}, []string{ruleFence}},
		{"newest write refused", func(h *History) {
			h.Wrote("k", 1, at(0), true)
			h.Wrote("k", 2, at(1), false)
		}, []string{ruleFence}},

		{"completed twice by one, seen, forgotten, done anew", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Completed("k", "a", 1, at(1))
			h.Completed("k", "a", 1, at(2))
			h.SeenDone("k", 1, at(3))
			h.Forget("k", at(4))
			h.Granted("k", "b", 2, at(5))
			h.Completed("k", "b", 2, at(6))
		}, nil},
		{"granted after done, but asked before", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Attempt("k", "b", at(1))
			h.Completed("k", "a", 1, at(1))
			h.Granted("k", "b", 2, at(2))
		}, nil},
		{"two completions", func(h *History) {
			h.Completed("k", "a", 1, at(0))
			h.Completed("k", "b", 2, at(1))
		}, []string{ruleCompleted}},
		{"seen done by another token", func(h *History) {
			h.Completed("k", "a", 1, at(0))
			h.SeenDone("k", 2, at(1))
		}, []string{ruleSeenDone}},
		{"seen done before the contradicting completion", func(h *History) {
			h.SeenDone("k", 2, at(0))
			h.Completed("k", "a", 1, at(1))
		}, []string{ruleSeenDone}},
		{"seen done by two tokens", func(h *History) {
			h.SeenDone("k", 1, at(0))
			h.SeenDone("k", 2, at(1))
		}, []string{ruleSeenDone}},
		{"granted after completion", func(h *History) {
			h.Completed("k", "a", 1, at(0))
			h.Granted("k", "b", 2, at(1))
		}, []string{ruleRegrant}},
		{"granted after a done report", func(h *History) {
			h.SeenDone("k", 1, at(0))
			h.Attempt("k", "b", at(0))
			h.Granted("k", "b", 2, at(1))
		}, []string{ruleRegrant}},
		{"forgotten too early", func(h *History) {
			h.Forget("k", at(0))
			h.Completed("k", "a", 1, at(1))
			h.Granted("k", "b", 2, at(2))
		}, []string{ruleRegrant}},
		{"end without grant", func(h *History) {
			h.Granted("k", "a", 1, at(0))
			h.Ended("k", "a", 2, at(1))
		}, []string{ruleStrayEnd}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h History
			test.make(&h)
			err := h.Check()
			if got := rules(t, err); !slices.Equal(got, test.want) {
				t.Errorf("violated %q, want %q\n%v", got, test.want, err)
			}
		})
	}
}

func TestHistoryErrorNamesTheEvents(t *testing.T) {
	var h History
	h.Granted("orders/7", "worker-1", 41, at(0))
	h.Granted("orders/7", "worker-2", 42, at(3))
	h.Ended("orders/7", "worker-1", 41, at(5))
	got := fmt.Sprint(h.Check())
	for _, part := range []string{ruleOverlap, "orders/7", "worker-1", "41", "worker-2", "42", "+3s", "+5s"} {
		if !strings.Contains(got, part) {
			t.Errorf("error lacks %q: %s", part, got)
		}
	}
}

func TestHistoryReport(t *testing.T) {
	var h History
	h.Attempt("k", "a", at(0))
	h.Granted("k", "a", 7, at(1))
	h.Lost("k", "a", 7, at(4))
	h.Granted("k", "b", 9, at(5))
	h.Ended("k", "b", 9, at(6))
	h.Wrote("k", 9, at(5), true)
	h.Wrote("k", 7, at(6), false)
	want := `keys 1, attempts marked 1, grants 2, ended 2 (lost 1), still held 0
holds: shortest 1s, longest 3s
tokens: 7 to 9
writes: 2, refused 1
verdict: clean
`
	if got := h.Report(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	h.Granted("k", "c", 8, at(7))
	if got := h.Report(); !strings.HasSuffix(got, "verdict: 1 violations\n") {
		t.Errorf("violation not reported:\n%s", got)
	}
}

func TestHistoryManyWaiters(t *testing.T) {
	const n = 200
	var h History
	for i := range n {
		h.Attempt("k", fmt.Sprint(i), at(0))
	}
	for i := range n {
		h.Granted("k", fmt.Sprint(i), uint64(i+1), at(2*i+1))
		h.Ended("k", fmt.Sprint(i), uint64(i+1), at(2*i+2))
	}
	if _, unknown := h.verify(); len(unknown) > 0 {
		t.Error("search gave up")
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

// A search that is given up is not a violation.
func TestHistorySearchIsBounded(t *testing.T) {
	var h History
	for i, holder := range []string{"a", "b"} {
		h.Attempt("k", holder, at(0))
		h.Granted("k", holder, uint64(i+1), at(2*i+1))
		h.Ended("k", holder, uint64(i+1), at(2*i+2))
	}
	c := checker{k: h.keys["k"], zero: h.zero()}
	c.windows = c.k.windows()
	c.checkLinearizable(3)
	if !c.unknown || len(c.found) > 0 {
		t.Errorf("after three steps of the search: unknown is %t, violations %v", c.unknown, c.found)
	}
}

func TestHistoryConcurrentUse(t *testing.T) {
	var (
		h    History
		lock sync.Mutex
		last uint64
		wg   sync.WaitGroup
	)
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint(i)
			for range 50 {
				h.Attempt("k", name, time.Now())
				lock.Lock()
				last++
				token := last
				h.Granted("k", name, token, time.Now())
				h.Wrote("k", token, time.Now(), true)
				h.Ended("k", name, token, time.Now())
				lock.Unlock()
			}
		})
	}
	wg.Go(func() { _ = h.Report() })
	wg.Wait()
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}
