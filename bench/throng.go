package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

const throngProcesses = 3

// A throng is lockers in other processes that all want one key, in a closed loop.
type throng struct {
	lockers             int
	hold, warm, measure time.Duration
}

// A passage is how a throng fared.
type passage struct {
	shares              []int         // acquisitions by locker
	each                time.Duration // per acquisition
	requests, published float64       // per acquisition and node
	waited, handoffs    *histogram
	overtook            float64 // of the acquisitions
	most                int     // overtakings of one wait
	failures            []error
	stood               time.Duration // that the machine stood still, at most
}

func (t throng) run(ctx context.Context, p peer, on *nodes) (passed passage, err error) {
	err = inProcesses(ctx, throngProcesses, t.lockers, p, on, func(others []*process) error {
		const ahead, beyond = 50 * time.Millisecond, 50 * time.Millisecond
		ctx, cancel := context.WithTimeoutCause(ctx, t.warm+t.measure+patience, errHung)
		defer cancel()
		start := clock() + ahead
		measured := period{start + t.warm, start + t.warm + t.measure}
		replies := make([]LoopReply, len(others))
		looped := make(chan error, 1)
		go func() {
			looped <- together(others, func(i int, other *process) error {
				return other.call(ctx, "Loop", LoopArgs{Key: "bench:throng", Hold: t.hold, Until: measured.to + beyond}, &replies[i])
			})
		}()
		time.Sleep(measured.from - clock())
		before, err := on.traffic(ctx, p.command)
		watching := startBystander()
		time.Sleep(measured.to - clock())
		stood := watching.end()
		after, err2 := on.traffic(ctx, p.command)
		if err := errors.Join(err, err2, <-looped); err != nil {
			return err
		}
		passed = passageOf(measured, replies, after.since(before), len(on.servers))
		passed.stood = stood
		return nil
	})
	return passed, err
}

func passageOf(measured period, replies []LoopReply, sent traffic, nodes int) passage {
	var p passage
	var waits []Wait
	for _, r := range replies {
		for _, w := range r.Waits {
			p.shares = append(p.shares, len(measured.granted(w)))
			waits = append(waits, w...)
		}
		if r.Failures > 0 {
			p.failures = append(p.failures, slices.Repeat([]error{errors.New(r.Failure)}, r.Failures)...)
		}
	}
	granted := measured.granted(waits)
	past, most := overtakings(granted, waits)
	n := float64(len(granted))
	p.requests, p.published = float64(sent.requests)/n/float64(nodes), float64(sent.published)/n/float64(nodes)
	p.overtook, p.most = float64(past)/n, most
	p.waited, p.handoffs = measured.waited(waits), handoffs(granted)
	p.each = never
	if len(granted) > 0 {
		p.each = (measured.to - measured.from) / time.Duration(len(granted))
	}
	return p
}

// never is how long it takes for what does not happen.
const never time.Duration = math.MaxInt64

// to is the ratio of a duration to an ideal one, NaN if there is none.
func to(d, ideal time.Duration) float64 {
	if d == never {
		return math.NaN()
	}
	return float64(d) / float64(ideal)
}
