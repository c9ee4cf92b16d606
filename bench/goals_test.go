package main

import (
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	for want, g := range map[string]goal{
		"–":                 {},
		"yes":               {got: []figure{{peer: lockkitOpen, met: true}, {peer: lockkitNew, met: true}}},
		"no":                {got: []figure{{peer: lockkitOpen}}},
		"lockkit, New only": {got: []figure{{peer: lockkitOpen}, {peer: lockkitNew, met: true}}},
	} {
		if got := g.verdict(); got != want {
			t.Errorf("%+v: %s, want %s", g, got, want)
		}
	}
	less := goal{less: "3 leases", got: []figure{{peer: lockkitOpen, met: true}}}
	if got := less.verdict(); got != "– (3 leases)" {
		t.Errorf("a run that measured less: %s", got)
	}
}

func TestGoals(t *testing.T) {
	with := func(peer string, rate float64, p50, commands time.Duration, requests float64) result {
		r := result{peer: peer, rate: rate, rates: []float64{rate}, requests: requests, least: commands}
		r.whole.add(p50)
		return r
	}
	rs := []result{
		with(baseline, 100, 50*time.Microsecond, time.Microsecond, 2),
		with("rueidislock", 200, 50*time.Microsecond, time.Microsecond, 2),
		with(lockkitOpen, 300, 58*time.Microsecond, 6*time.Microsecond, 0.125),
		with(lockkitNew, 250, 70*time.Microsecond, 7*time.Microsecond, 0.1),
	}

	var s section
	s.goals = append(s.goals, rateGoals(1, goalGoroutines, rs)...)
	s.goals = append(s.goals, latencyGoals(1, 1, rs)...)
	s.goals = append(s.goals, serverGoals(1, goalGoroutines, rs)...)
	s.goals = append(s.goals, rateGoals(1, 1, rs)...)    // other numbers of goroutines
	s.goals = append(s.goals, latencyGoals(1, 2, rs)...) // have no goals

	var got strings.Builder
	for _, g := range s.goals {
		got.WriteString(strings.Join([]string{g.want, g.of(lockkitOpen), g.of(lockkitNew), g.verdict()}, " | ") + "\n")
	}

	rs[3].requests = 1
	if g := serverGoals(1, goalGoroutines, rs)[0]; g.verdict() != "– (smaller batches)" {
		t.Errorf("batches of 2: %+v", *g)
	}

	const want = `≥ 3.0× redsync | 300, 3.00× | 250, 2.50× | lockkit, Open only
≥ 1.3× rueidislock | 300, 1.50× | 250, 1.25× | lockkit, Open only
≤ 1.2× redsync | 58.1 µs, 1.16× | 70.1 µs, 1.41× | lockkit, Open only
≤ 6.00 µs | 6.00 µs, batches of 16.0 | 7.00 µs, batches of 20.0 | lockkit, Open only
`
	if got.String() != want {
		t.Errorf("got:\n%s", got.String())
	}
	if table := goalsOf([]section{s}, lockkitOpen, lockkitNew).parts[0].table; len(table.rows) != 4 {
		t.Errorf("%d rows", len(table.rows))
	}
}
