package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

const outageRoundTrip = 10 * time.Millisecond

// outage stops all servers for a while, under leases that are held.
func outage(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "All nodes stopped for a while",
		text: fmt.Sprintf(`Leases with a TTL of %v are held on nodes that are %v away. When they have been held for a third of that, so that renewals
are under way, all servers are stopped (SIGSTOP) for %v, and go on. Lost: leases whose holder was told within the TTL after
that. Goroutines: the most that were there from the stop on, beside those of the proxies and those of before. Not confirmed:
releases that failed, of leases that were held to the end. Only peers that renew are here, one after another.`,
			c.outage.ttl, outageRoundTrip, c.outageLasts),
	}
	t := table{head: []string{"nodes", "leases", "peer", "lost", "first lost after", "goroutines", "not confirmed"}, text: 2}
	for _, n := range []int{1, 3} {
		lost := &goal{
			what: fmt.Sprintf("%s, 3,000 leases, round trip %v, all stopped for 1.5 s of a TTL of 10 s: leases lost", plural(n, "node"), outageRoundTrip),
			want: "none",
			less: c.outage.leases < 3000 || c.outage.ttl != 10*time.Second || c.outageLasts < 1500*time.Millisecond,
		}
		s.goals = append(s.goals, lost)
		for _, p := range peersFor(n) {
			if !p.renews {
				continue
			}
			err := onNodes(n, outageRoundTrip, func(on *nodes) error {
				o, err := stopUnder(ctx, c, p, on)
				if err != nil {
					return err
				}
				t.add(strconv.Itoa(n), strconv.Itoa(c.outage.leases), p.name, strconv.Itoa(len(o.lost)), short(o.firstLost),
					strconv.Itoa(o.goroutines), strconv.Itoa(len(o.unconfirmed)))
				lost.add(p.name, fmt.Sprintf("%d of %d", len(o.lost), c.outage.leases), len(o.lost)+len(o.before) == 0)
				where := fmt.Sprintf("%s, %s", plural(n, "node"), p.name)
				s.noteSome(o.before, "%s: leases that were not granted, or lost before the servers stopped", where)
				s.noteSome(o.lost, "%s: leases lost", where)
				s.noteSome(o.unconfirmed, "%s: releases not confirmed", where)
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", plural(n, "node"), p.name, err)
			}
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// A stopped is what became of leases whose servers were stopped for a while.
type stopped struct {
	before            []error // of leases that failed before
	lost, unconfirmed []error
	firstLost         time.Duration // since the stop
	goroutines        int
}

func stopUnder(ctx context.Context, c config, p peer, on *nodes) (o stopped, err error) {
	before := runtime.NumGoroutine() - on.proxyGoroutines()
	h, err := openHolder(ctx, p, on, c.outage)
	if err != nil {
		return o, err
	}
	defer h.close()
	hs := make(holdings, c.outage.leases)
	o.before = hs.take(ctx, h)
	time.Sleep(c.outage.ttl / 3)
	o.before = append(o.before, hs.lost()...)

	stop := time.Now()
	if err := on.each((*testutil.Server).Pause); err != nil {
		return o, errors.Join(err, on.each((*testutil.Server).Resume))
	}
	resumed := false
	for end := c.outageLasts + c.outage.ttl; time.Since(stop) < end; time.Sleep(20 * time.Millisecond) {
		if !resumed && time.Since(stop) >= c.outageLasts {
			resumed = true
			if err := on.each((*testutil.Server).Resume); err != nil {
				return o, err
			}
		}
		o.goroutines = max(o.goroutines, runtime.NumGoroutine()-on.proxyGoroutines()-before)
		if o.firstLost == 0 && len(hs.lost()) > len(o.before) {
			o.firstLost = time.Since(stop)
		}
	}
	o.lost = hs.lost()
	o.unconfirmed = hs.release(ctx)
	return o, nil
}
