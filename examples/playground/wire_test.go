package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
)

// The page reads this JSON.
func TestEventsOnTheWire(t *testing.T) {
	for want, e := range map[string]Event{
		`{"at":1.5,"kind":"node_down","node":0}`: {At: 1.5, Kind: isDown, Node: new(0)},
		`{"at":1.5,"replica":"a","kind":"grant","key":"k","token":1795445528424454,"until":2.5}`: {At: 1.5, Kind: isGrant, Replica: "a", Key: "k",
			Token: 1795445528424454, Until: 2.5},
		`{"at":1.5,"replica":"a","kind":"grant","key":"payments-api","slot":0,"token":7,"until":2.5}`: {At: 1.5, Kind: isGrant, Replica: "a", Key: api,
			Slot: new(0), Token: 7, Until: 2.5},
		`{"at":1.5,"replica":"a","kind":"wait","key":"k","ms":0.25}`: {At: 1.5, Kind: isWait, Replica: "a", Key: "k", Ms: 0.25},
	} {
		got, err := json.Marshal(e)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	now := time.Now().Truncate(time.Microsecond)
	if again := instant(millis(now)); math.Abs(float64(again.Sub(now))) > float64(time.Microsecond) {
		t.Errorf("%v became %v", now, again)
	}
	if token := uint64(time.Now().AddDate(100, 0, 0).UnixMicro()); token >= 1<<53 {
		t.Errorf("JavaScript does not read the token %d", token)
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if got := h.quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	h.add(Histogram{}) // of a process that had no data
	h.add(Histogram{Bounds: []float64{0.1, 1}, Counts: []uint64{3, 5, 1}})
	h.add(Histogram{Bounds: []float64{0.1, 1}, Counts: []uint64{1, 0, 0}})
	for q, want := range map[float64]float64{0.4: 100, 0.1: 25, 0.9: 1000, 1: 1000} {
		if got := h.quantile(q); math.Abs(got-want) > 0.001 {
			t.Errorf("quantile %v is %v ms, want %v", q, got, want)
		}
	}
	if s := h.state(); len(s.Buckets) != 3 || s.Buckets[0] != (Bucket{100, 4}) || s.Buckets[2] != (Bucket{0, 1}) {
		t.Errorf("%+v", s)
	}
}

// The board keeps a bounded number of events. A reader that is too slow misses some.
func TestBoard(t *testing.T) {
	b := newBoard()
	for i := range boardSize + 5 {
		b.add(Event{Ms: float64(i)})
	}
	events, next, more := b.since(0)
	if len(events) != boardSize || next != boardSize+5 || events[0].Ms != 5 || events[boardSize-1].Ms != boardSize+4 {
		t.Errorf("%d events, next %d, from %v to %v", len(events), next, events[0].Ms, events[len(events)-1].Ms)
	}
	b.add(Event{Kind: isGrant})
	<-more
	if events, _, _ := b.since(next); len(events) != 1 || events[0].Kind != isGrant {
		t.Errorf("then %+v", events)
	}
	found := make(chan error, 1)
	n := b.end()
	go func() {
		_, err := b.await(t.Context(), n, isOf("a", "", isEnd))
		found <- err
	}()
	b.add(Event{Kind: isEnd, Replica: "b"})
	b.add(Event{Kind: isEnd, Replica: "a"})
	if err := <-found; err != nil {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.await(over, b.end(), isOf("a", "", isEnd)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestHistogramCounts(t *testing.T) {
	h := newHistogram()
	for _, took := range []time.Duration{0, time.Millisecond, 1100 * time.Microsecond, time.Hour} {
		h.count(took)
	}
	if first, second, last := h.Counts[0], h.Counts[1], h.Counts[len(h.Bounds)]; first != 2 || second != 1 || last != 1 {
		t.Errorf("counts %v: a bound belongs to the waits below it, and what is longer than all comes last", h.Counts)
	}
}
