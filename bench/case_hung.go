package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"
)

const (
	hungNodes      = 5
	hungGoroutines = 128

	goalHung   = 0.8
	goalGrowth = 16 // as many come and go without a hung node
)

// hung stops one of five servers, so that connections stay open and nothing is answered.
func hung(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "One of 5 nodes hung",
		text: fmt.Sprintf(`%d goroutines lock and unlock as above, first with all servers healthy, then with one of them stopped (SIGSTOP):
connections stay open, and nothing is answered. Counting begins %v after that, and lasts %v. Goroutines: the most that were
there at once beside the %d and those that are there when nothing runs. Calls that are under way when the time is over end after
the server goes on, and count no more; so a peer that waits for the node has 0 pairs. By default redsync waits for all
nodes: its lock gives up after a twentieth of the TTL, but clients of go-redis do not heed contexts by default, and wait
for 3 s, and its unlock has no limit but the client's, 4 times 3 s. Fail fast is its option not to wait.`,
			hungGoroutines, c.hungWarm, c.hungMeasure, hungGoroutines),
	}
	t := table{head: []string{"peer", "healthy pairs/s", "hung pairs/s", "min–max", "hung to healthy", "p50", "p99", "goroutines healthy", "goroutines hung"}}
	bars := newChart("hung.svg", "One of 5 nodes hung", "pairs per second")
	err := onNodes(hungNodes, 0, func(on *nodes) error {
		es, err := enter(ctx, append(peersFor(hungNodes), redsyncFailFast), on, hungGoroutines)
		if err != nil {
			return err
		}
		defer leave(es)
		quiet := runtime.NumGoroutine()
		err = interleave(ctx, c.rounds, es, on, load{goroutines: hungGoroutines, waves: waves, warm: c.warm, measure: c.measure, idle: quiet})
		if err != nil {
			return err
		}
		healthy := results(es)
		for _, e := range es {
			e.anew()
		}
		for round := range c.hungRounds {
			for i := range es {
				e := es[(round+i)%len(es)]
				if err := e.measureHung(ctx, c, on, quiet); err != nil {
					return fmt.Errorf("%s, one node hung: %w", e.name, err)
				}
				calm(quiet + goalGrowth/2)
			}
		}
		throughput := &goal{what: fmt.Sprintf("one of %d nodes hung: pairs/s to healthy", hungNodes), want: fmt.Sprintf("≥ %.1f×", goalHung)}
		growth := &goal{what: fmt.Sprintf("one of %d nodes hung: goroutines more than healthy", hungNodes), want: fmt.Sprintf("none (≤ %d)", goalGrowth)}
		s.goals = append(s.goals, throughput, growth)
		for i, r := range results(es) {
			ratio := math.NaN()
			if healthy[i].rate > 0 {
				ratio = r.rate / healthy[i].rate
			}
			t.add(r.cell(), rate(healthy[i].rate), rate(r.rate), spread(r.low, r.high), times(ratio),
				short(r.whole.quantile(0.5)), short(r.whole.quantile(0.99)),
				strconv.Itoa(max(0, healthy[i].goroutines)), strconv.Itoa(max(0, r.goroutines)))
			bars.addBar("healthy", r.peer, healthy[i].rate)
			bars.addBar("one hung", r.peer, r.rate)
			more := r.goroutines - healthy[i].goroutines
			throughput.add(r.peer, fmt.Sprintf("%s, %s", rate(r.rate), times(ratio)), ratio >= goalHung)
			growth.add(r.peer, fmt.Sprintf("%+d (%d, %d)", more, healthy[i].goroutines, r.goroutines), more <= goalGrowth)
			s.note(healthy[i], "healthy")
			s.note(r, "one hung")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.add("", &t, bars)
	return []section{s}, nil
}

// measureHung stops the last server for the time of one slice.
func (e *entrant) measureHung(ctx context.Context, c config, on *nodes, quiet int) error {
	runtime.GC()
	last := on.servers[len(on.servers)-1]
	if err := last.Pause(); err != nil {
		return err
	}
	s, err := e.run(ctx, load{
		goroutines: hungGoroutines, warm: c.hungWarm, measure: c.hungMeasure, call: e.pair, idle: quiet,
		stopped: last.Resume,
	})
	if err != nil {
		_ = last.Resume() // it may have gone on already
		return err
	}
	e.rounds = append(e.rounds, s)
	return nil
}

// calm waits until what the last peer left behind is done: no more than so many goroutines are there, or ten
// seconds have passed.
func calm(goroutines int) {
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}
