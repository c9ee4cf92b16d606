package main

import (
	"errors"
	"math"
	"testing"
	"time"
)

func rounds(calls ...int) []slice {
	var rs []slice
	for _, n := range calls {
		rs = append(rs, slice{calls: n, all: n, elapsed: time.Second})
	}
	return rs
}

func TestResults(t *testing.T) {
	slow := &entrant{peer: peer{name: baseline}, rounds: rounds(100, 50, 0)}
	fast := &entrant{peer: peer{name: "fast"}, rounds: rounds(300, 200, 10),
		servers: serverUse{commands: 510 * time.Microsecond}, client: 1020 * time.Microsecond}
	fast.rounds[1].failures, fast.rounds[1].failure = 2, errors.New("first")
	fast.rounds[2].failures, fast.rounds[2].failure = 1, errors.New("second")
	rs := results([]*entrant{slow, fast})
	got := rs[1]
	if got.rate != 200 || got.low != 10 || got.high != 300 {
		t.Errorf("rate %v, %v to %v", got.rate, got.low, got.high)
	}
	if got.ratio != 3.5 { // the median of 3 and 4; a round without calls has no ratio
		t.Errorf("ratio %v, want 3.5", got.ratio)
	}
	if got.failures != 3 || got.failure.Error() != "first" {
		t.Errorf("%d failures, %v", got.failures, got.failure)
	}
	if got.servers.commands != time.Microsecond || got.client != 2*time.Microsecond {
		t.Errorf("per call: %+v, client %v", got.servers, got.client)
	}
	if rs[0].ratio != 1 {
		t.Errorf("the baseline's ratio is %v", rs[0].ratio)
	}
	if alone := results([]*entrant{fast}); !math.IsNaN(alone[0].ratio) {
		t.Errorf("ratio %v without a baseline", alone[0].ratio)
	}
}

func TestMedian(t *testing.T) {
	none := math.NaN()
	for _, c := range []struct {
		of   []float64
		want string
	}{{nil, "–"}, {[]float64{none}, "–"}, {[]float64{3, none, none}, "3.00"}, {[]float64{4, none, 1, 3}, "3.00"}, {[]float64{1, 2}, "1.50"}} {
		if got := number(median(c.of)); got != c.want {
			t.Errorf("of %v: %s, want %s", c.of, got, c.want)
		}
	}
}
