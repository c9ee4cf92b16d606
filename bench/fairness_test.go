package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for _, one := range []struct {
		shares []int
		want   float64
	}{
		{[]int{7, 7, 7, 7}, 1},
		{[]int{0, 0, 9, 0}, 0.25},
		{[]int{1, 2, 3}, 36.0 / 42},
	} {
		if got := jain(one.shares); math.Abs(got-one.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", one.shares, got, one.want)
		}
	}
	if got := jain([]int{0, 0}); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestOvertakings(t *testing.T) {
	waits := []Wait{
		{Begun: 10, Granted: 100},
		{Begun: 20, Granted: 90},  // past the first
		{Begun: 30},               // never granted
		{Begun: 40, Granted: 110}, // past the third
		{Begun: 95, Granted: 120}, // past the third, too
		{Begun: 111, Granted: 300},
	}
	all := period{1, 1000}
	granted := all.granted(waits)
	if past, most := overtakings(granted, waits); past != 4 || most != 3 {
		t.Errorf("%d acquisitions past others, one %d times, want 4 and 3", past, most)
	}
	if past, most := overtakings(period{100, 105}.granted(waits), waits); past != 0 || most != 0 {
		t.Errorf("the first alone: %d, %d", past, most)
	}
	inOrder := []Wait{{Begun: 1, Granted: 5}, {Begun: 1, Granted: 6}, {Begun: 2, Granted: 7}}
	if past, most := overtakings(inOrder, inOrder); past != 0 || most != 0 {
		t.Errorf("in order: %d, %d", past, most)
	}
}

func TestPeriod(t *testing.T) {
	waits := []Wait{
		{Begun: 5, Granted: 30, Released: 31},
		{Begun: 1, Granted: 10, Released: 12},
		{Begun: 2, Granted: 13, Released: 20}, // waited for the second
		{Begun: 3, Granted: 9},                // before
		{Begun: 21, Granted: 41},              // after: 19 until then
		{Begun: 39},                           // 1
		{Begun: 41},                           // did not begin
	}
	p := period{10, 40}
	granted := p.granted(waits)
	if len(granted) != 3 || granted[0].Granted != 10 || granted[1].Granted != 13 || granted[2].Granted != 30 {
		t.Fatalf("granted: %+v", granted)
	}
	waited := p.waited(waits)
	if waited.total != 5 || waited.quantile(1) != 25 || waited.quantile(0.2) != 1 {
		t.Errorf("%d waits, at most %v, at least %v", waited.total, waited.quantile(1), waited.quantile(0.2))
	}
	if h := handoffs(granted); h.total != 2 || h.quantile(0.5) != 1 || h.quantile(1) != 10 {
		t.Errorf("%d hand-offs, %v and %v", h.total, h.quantile(0.5), h.quantile(1))
	}
	late := []Wait{{Begun: 1, Granted: 2, Released: 3}, {Begun: 4, Granted: 5}}
	if h := handoffs(late); h.total != 0 {
		t.Errorf("who came after the release had not waited for it: %d", h.total)
	}
}

func TestInversions(t *testing.T) {
	for _, one := range []struct {
		numbers []int
		want    int
	}{
		{nil, 0},
		{[]int{1}, 0},
		{[]int{1, 2, 3, 4, 5}, 0},
		{[]int{5, 4, 3, 2, 1}, 10},
		{[]int{2, 1, 3, 5, 4}, 2},
		{[]int{3, 1, 2}, 2},
		{[]int{1, 1, 0}, 2},
	} {
		numbers := slices.Clone(one.numbers)
		if got := inversions(numbers); got != one.want {
			t.Errorf("%v: %d, want %d", one.numbers, got, one.want)
		}
		if !slices.Equal(numbers, one.numbers) {
			t.Errorf("%v was changed to %v", one.numbers, numbers)
		}
	}
}

func TestShare(t *testing.T) {
	for _, things := range []int{16, 99, 2} {
		sum := 0
		for i := range 3 {
			sum += share(things, 3, i)
		}
		if sum != things {
			t.Errorf("shares of %d: %d in all", things, sum)
		}
	}
}

func TestPassage(t *testing.T) {
	measured := period{0, 30 * time.Millisecond}
	replies := []LoopReply{
		{Waits: [][]Wait{{{Begun: 0, Granted: 1, Released: 5}, {Begun: 6, Granted: 12}}, {{Begun: 2, Granted: 7, Released: 11}}}},
		{Waits: [][]Wait{nil}, Failures: 2, Failure: "no"},
	}
	p := passageOf(measured, replies, traffic{requests: 18, published: 9}, 3)
	if !slices.Equal(p.shares, []int{2, 1, 0}) || p.each != 10*time.Millisecond || p.requests != 2 || p.published != 1 ||
		p.overtook != 0 || p.waited.total != 3 || p.handoffs.total != 2 || len(p.failures) != 2 {
		t.Errorf("got %+v", p)
	}
	if p := passageOf(measured, nil, traffic{}, 1); number(p.requests) != "–" || number(p.overtook) != "–" || times(to(p.each, crowdHold)) != "–" ||
		to(p.each, crowdHold) <= goalCrowdIdeal || rate(1/p.each.Seconds()) != "0" || p.overtaken() != "–" {
		t.Errorf("of nothing: %+v", p)
	}
}
