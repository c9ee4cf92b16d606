package core

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A batch is bounded in what it brings along, too, so that large results do not keep a server busy for long; one
// request goes whatever its size.
func TestBatchesAreBoundedInBulk(t *testing.T) {
	sizes := func(bulks ...int) (loads []int) {
		var queue []request
		for _, b := range bulks {
			queue = append(queue, request{r: &round{bulk: b}})
		}
		for len(queue) > 0 {
			var f flight
			queue = f.load(queue)
			loads = append(loads, len(f.batch))
		}
		return loads
	}
	for _, c := range []struct{ bulks, want []int }{
		{make([]int, maxBatch), []int{maxBatch}},
		{make([]int, maxBatch+1), []int{maxBatch, 1}},
		{[]int{64 << 10, 0, 64 << 10, 64 << 10}, []int{1, 1, 1, 1}},
		{[]int{30 << 10, 30 << 10, 0, 0, 30 << 10}, []int{4, 1}},
	} {
		if got := sizes(c.bulks...); !slices.Equal(got, c.want) {
			t.Errorf("bulks of %d requests travel as %v, want %v", len(c.bulks), got, c.want)
		}
	}
	var f flight
	urgent := f.load([]request{{r: &round{bulk: 64 << 10}}})
	if asking := f.load([]request{{r: &round{}}}); len(urgent) != 0 || len(asking) != 1 {
		t.Errorf("%d and %d are left behind a batch that is full", len(urgent), len(asking))
	}
}

// How long a batch waits for company: over a network a part of the round trip, where the server is busy half of the
// time that takes.
func TestPace(t *testing.T) {
	for _, c := range []struct{ floor, latency, want time.Duration }{
		{0, 0, minPace},
		{100 * time.Microsecond, 100 * time.Microsecond, minPace},
		{10 * time.Millisecond, 10 * time.Millisecond, time.Millisecond},
		{100 * time.Microsecond, 2100 * time.Microsecond, time.Millisecond},
		{10 * time.Millisecond, 14 * time.Millisecond, 2 * time.Millisecond},
		{100 * time.Microsecond, time.Second, maxPace},
		{time.Second, time.Second, maxPace},
		{10 * time.Millisecond, time.Millisecond, time.Millisecond}, // the road has become shorter
	} {
		l := lane{e: &ensemble{pace: minPace}, n: &node{connections: 10}, floor: c.floor, latency: c.latency}
		if got := l.pace(); got != c.want {
			t.Errorf("%v alone, %v now: %v, want %v", c.floor, c.latency, got, c.want)
		}
	}
}

// Only what is under way alone, and is answered, shows how long the road is.
func TestFloorOfALane(t *testing.T) {
	for name, c := range map[string]struct {
		f        flight
		floor    time.Duration
		answered bool
		want     time.Duration
	}{
		"the first":    {flight{number: 7, alone: true}, 0, true, 9 * time.Millisecond},
		"slower":       {flight{number: 7, alone: true}, time.Millisecond, true, 2 * time.Millisecond},
		"quicker":      {flight{number: 7, alone: true}, 20 * time.Millisecond, true, 9 * time.Millisecond},
		"with others":  {flight{number: 7}, time.Millisecond, true, time.Millisecond},
		"another came": {flight{number: 6, alone: true}, time.Millisecond, true, time.Millisecond},
		"no answer":    {flight{number: 7, alone: true}, time.Millisecond, false, time.Millisecond},
	} {
		l := lane{e: &ensemble{clock: newStopwatch()}, n: &node{}, floor: c.floor, batches: 7, flights: 1}
		if l.landed(&c.f, 0, instant(9*time.Millisecond), c.answered); l.floor != c.want {
			t.Errorf("%s: the floor is %v, want %v", name, l.floor, c.want)
		}
	}
}

// What failed, or was not sent, is no answer that Close would go on waiting for.
func TestAnswersOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, p *process)
		want    bool
	}{
		"granted":  {func(*world, *process) {}, true},
		"refused":  {func(_ *world, p *process) { p.refused() }, false},
		"an error": {func(w *world, p *process) { w.nodes[0].Exec("HSET", p.e.keys.Resource("k"), "f", "v") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				time.Sleep(time.Second)
				now := p.e.clock.now()
				c.prepare(w, p)
				p.TryAcquire(t.Context(), "k")
				if got := p.e.answered.load() >= now; got != c.want {
					t.Errorf("answered: %v", got)
				}
			})
		})
	}
}

// Close waits for releases for as long as nodes answer, however many there are: it closes clients that are its own
// when none has answered for the node timeout.
func TestCloseWaitsWhileNodesAnswer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		const leases = 3*maxBatch + 1
		for i := range leases {
			w.acquire(p, fmt.Sprint(i))
		}
		p.e.owned = true
		p.e.nodes[0].connections = 1 // so that they are released one batch after the other
		p.links[0].set(fate{replyDelay: p.p.nodeTimeout * 3 / 5}, batchScript, releaseScript)
		start := time.Now()
		p.Close(over())
		if d := time.Since(start); d < 2*p.p.nodeTimeout {
			t.Errorf("the schedule is off: closed within %v", d)
		}
		for i := range leases {
			w.wantFree(other, fmt.Sprint(i))
		}
	})
}

// A batch to a silent server waits three times as long as the silence, for a part of the node timeout at most: a small
// one while half of the connections are free.
func TestBackoff(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		silent, latency time.Duration
		flights         int
		want            time.Duration
	}{
		{5 * time.Millisecond, time.Millisecond, 2, 12 * time.Millisecond},
		{time.Minute, time.Millisecond, 10, timeout / soonPart},
		{time.Minute, time.Millisecond, 11, timeout / latePart},
	} {
		l := lane{n: &node{connections: 20}, left: instant(c.silent), latency: c.latency, flights: c.flights, timeout: timeout}
		if got := l.backoff(); got != c.want {
			t.Errorf("%d under way, silent for %v: %v, want %v", c.flights, c.silent, got, c.want)
		}
	}
}

// Where Lockers with several node timeouts ask over one lane, the shortest bounds how long it backs off.
func TestBackoffHeedsTheShortestTimeout(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := p.p.nodeTimeout / 2
		hasty := &process{Locker: must(p.With(withNodeTimeout(short)))}
		for _, who := range []*process{p, hasty, p} {
			w.release(w.acquire(who, "k"))
		}
		l := p.e.nodes[0].lane(0)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timeout != short {
			t.Errorf("the lane goes by %v, want %v", l.timeout, short)
		}
	})
}
