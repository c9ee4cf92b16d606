package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// good returns books and payments that go together.
func good() (books, []payment) {
	b := books{
		requests:    map[string]bool{"request-1": true},
		tasks:       map[string]bool{"task-1": true},
		receipts:    map[string][]string{"request-1": {"A"}, "task-1": {"B"}},
		kills:       100,
		repetitions: 1,
	}
	return b, []payment{{"A", "request-1"}, {"B", "task-1"}, {"C", "fee-1"}}
}

// Each violation is found, and named.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(b *books, payments []payment) []payment
		want   string // "" means that nothing is wrong
	}{
		{"nothing", func(_ *books, all []payment) []payment { return all }, ""},
		{"a request twice", func(_ *books, all []payment) []payment { return append(all, payment{"D", "request-1"}) }, "request-1 was booked 2 times"},
		{"a tick twice", func(_ *books, all []payment) []payment { return append(all, payment{"D", "fee-1"}) }, "fee-1 was booked 2 times"},
		{"a request lost", func(_ *books, all []payment) []payment { return all[1:] }, "request-1 was answered, and is not booked"},
		{"a task lost", func(_ *books, all []payment) []payment { return append(all[:1:1], all[2:]...) }, "task-1 was answered, and is not booked"},
		{"a tick that nobody confirmed", func(_ *books, all []payment) []payment { return append(all, payment{"D", "fee-2"}) }, ""},
		{"a tick lost that was logged", func(b *books, all []payment) []payment {
			b.addReceipt("fee-2", "D")
			return all
		}, "fee-2 has a receipt D, which is not booked"},
		{"another receipt for a repetition", func(b *books, all []payment) []payment {
			b.addReceipt("request-1", "D")
			return all
		}, "request-1 has a receipt D, which is not booked"},
		{"an order that nobody asked for", func(_ *books, all []payment) []payment { return append(all, payment{"D", "request-2"}) }, "nobody has asked"},
		{"no ticks", func(_ *books, all []payment) []payment { return all[:2] }, "0 ticks"},
		{"kills that show nothing", func(b *books, all []payment) []payment {
			b.repetitions = 0
			return all
		}, "no work was found done after 100 kills"},
	} {
		b, payments := good()
		err := b.verdict(c.change(&b, payments))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The ledger reads the lines of the program.
func TestLog(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for _, line := range []string{
		"2026/11/30 01:02:03 INFO paid order=fee-2026-11-30T01:02:00Z receipt=A\n",
		"2026/11/30 01:02:03 INFO paid before order=task-1 receipt=B\n",
		"2026/11/30 01:02:03 ERROR not paid err=\"paid order=x receipt=y\"\n",
	} {
		l.log(line)
	}
	b := l.copy()
	if len(b.receipts) != 2 || b.receipts["fee-2026-11-30T01:02:00Z"][0] != "A" || b.receipts["task-1"][0] != "B" || b.repetitions != 1 {
		t.Errorf("%+v", b)
	}
}

// If payments are booked without a record of the work, the program finds it out.
func TestBreakIsFound(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), plan{on: "sqlite", kills: 100, breaks: true, limit: 20 * time.Minute})
	if err == nil || !strings.Contains(err.Error(), "was booked 2 times") {
		t.Error(err)
	}
}
