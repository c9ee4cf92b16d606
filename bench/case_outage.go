package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
that. All renewed: how long after the servers went on each lease that was not lost had been renewed, where the peer tells;
each is due once in a third of the TTL. Goroutines: the most that were there from the stop on, beside those of the proxies and those of before. Not confirmed:
releases that failed, of leases that were held to the end. Only peers that renew are here, one after another.`,
			c.outage.ttl, outageRoundTrip, c.outageLasts),
	}
	t := table{head: []string{"nodes", "leases", "peer", "lost", "first lost after", "all renewed", "goroutines", "not confirmed"}, text: 2}
	for _, n := range []int{1, 3} {
		lost := &goal{
			what: fmt.Sprintf("%s, 3,000 leases, round trip %v, all stopped for 1.5 s of a TTL of 10 s: leases lost", plural(n, "node"), outageRoundTrip),
			want: "none",
			less: c.outage.less(leaseConfig{3000, 10 * time.Second}),
		}
		s.goals = append(s.goals, lost)
		err := eachHolder(n, outageRoundTrip, func(p peer, on *nodes) error {
			o, err := stopUnder(ctx, c, p, on)
			if err != nil {
				return err
			}
			t.add(strconv.Itoa(n), strconv.Itoa(c.outage.leases), p.name, strconv.Itoa(len(o.lost)), short(o.firstLost),
				short(o.renewed), strconv.Itoa(o.goroutines), strconv.Itoa(len(o.unconfirmed)))
			lost.add(p.name, fmt.Sprintf("%d of %d", len(o.lost), c.outage.leases), len(o.lost)+len(o.ungranted) == 0)
			where := fmt.Sprintf("%s, %s", plural(n, "node"), p.name)
			s.noteSome(o.ungranted, "%s: leases not granted", where)
			s.noteSome(o.early, "%s: leases lost before the servers stopped", where)
			s.noteSome(o.lost, "%s: leases lost", where)
			s.noteSome(o.unconfirmed, "%s: releases not confirmed", where)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// A stopped is what became of leases whose servers were stopped for a while.
type stopped struct {
	ungranted         []error
	early             []error       // of leases that were lost before
	lost, unconfirmed []error       // lost: early ones included
	firstLost         time.Duration // since the stop
	renewed           time.Duration // all of them, since the servers went on; 0 if that is not known
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
	o.ungranted = hs.take(ctx, h)
	time.Sleep(c.outage.ttl / 3)
	o.early = hs.lost()

	stop := time.Now()
	if err := on.each((*testutil.Server).Pause); err != nil {
		return o, errors.Join(err, on.each((*testutil.Server).Resume))
	}
	var after *renewals // nil while servers are stopped
	for end := c.outageLasts + c.outage.ttl; time.Since(stop) < end; time.Sleep(20 * time.Millisecond) {
		if after == nil && time.Since(stop) >= c.outageLasts {
			after = renewalsOf(hs)
			if err := on.each((*testutil.Server).Resume); err != nil {
				return o, err
			}
		}
		o.goroutines = max(o.goroutines, runtime.NumGoroutine()-on.proxyGoroutines()-before)
		if o.firstLost == 0 && len(hs.lost()) > len(o.early) {
			o.firstLost = time.Since(stop)
		}
		if o.renewed == 0 && after != nil && after.all() {
			o.renewed = time.Since(after.since)
		}
	}
	o.lost = hs.lost()
	if len(o.lost) == len(hs) {
		o.renewed = 0 // none was
	}
	o.unconfirmed = hs.release(ctx)
	return o, nil
}

// renewals are those that leases are to have since some time. Only lockkit's say until when they are valid.
type renewals struct {
	since time.Time
	known bool
	left  []dueLease
}

type dueLease struct {
	lease interface{ ValidUntil() time.Time }
	until time.Time
}

func renewalsOf(hs holdings) *renewals {
	r := &renewals{since: time.Now()}
	for _, l := range hs {
		if l, ok := l.(interface{ ValidUntil() time.Time }); ok {
			r.left = append(r.left, dueLease{l, l.ValidUntil()})
		}
	}
	r.known = len(r.left) > 0
	return r
}

// all reports whether all have been renewed or lost.
func (r *renewals) all() bool {
	const jitter = time.Millisecond // of ValidUntil
	r.left = slices.DeleteFunc(r.left, func(d dueLease) bool {
		until := d.lease.ValidUntil()
		return until.After(d.until.Add(jitter)) || until.Before(time.Now())
	})
	return r.known && len(r.left) == 0
}
