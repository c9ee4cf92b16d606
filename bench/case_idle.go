package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

const (
	idleWaiters = 99
	idleTTL     = time.Minute // nobody has to renew meanwhile
	idleOthers  = 3 * time.Second

	goalIdle         = 10 * time.Second
	goalIdleRequests = 1.5
)

// idle has lockers wait for a key that somebody else holds all the time.
func idle(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Idle waiters",
		text: fmt.Sprintf(`%d lockers, each with clients of its own, wait for a key that another one holds, with a TTL of %v. Requests are what each
node was asked, by INFO commandstats, in %v, or %v of peers other than lockkit; pings are among them. %s`,
			idleWaiters, idleTTL, c.idle, min(c.idle, idleOthers), waitingText),
	}
	t := table{head: []string{"nodes", "peer", "requests/s and node", "per waiter", "published/s and node"}, text: 1}
	less := ""
	if c.idle < goalIdle {
		less = c.idle.String()
	}
	for _, n := range []int{1, 3} {
		g := &goal{
			what: fmt.Sprintf("%d idle waiters, %s: requests per waiter, second and node", idleWaiters, plural(n, "node")),
			want: fmt.Sprintf("the fallback's: ≤ %.1f", goalIdleRequests), less: less,
		}
		s.goals = append(s.goals, g)
		err := eachWaiting(&s, n, waitingPeers, func(p peer, on *nodes) error {
			lasts := c.idle
			if p.name != lockkitOpen {
				lasts = min(lasts, idleOthers)
			}
			sent, failed, err := idleFor(ctx, lasts, p, on)
			if err != nil {
				return err
			}
			perSecond := func(count int) float64 { return float64(count) / lasts.Seconds() / float64(n) }
			each := perSecond(sent.requests) / idleWaiters
			t.add(strconv.Itoa(n), p.name, rate(perSecond(sent.requests)), number(each), rate(perSecond(sent.published)))
			g.add(p.name, number(each), each <= goalIdleRequests && len(failed) == 0)
			s.noteSome(failed, "%s, %s: waits that ended", plural(n, "node"), p.name)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// idleFor returns what waiters asked all nodes for, and why waits ended before the time was over.
func idleFor(ctx context.Context, lasts time.Duration, p peer, on *nodes) (sent traffic, ended []error, err error) {
	lockers := make([]locker, 0, idleWaiters+1)
	defer func() {
		inParallel(len(lockers), func(i int) error {
			lockers[i].close()
			return nil
		})
	}()
	for range cap(lockers) {
		l, err := p.open(ctx, on.addrs(), idleTTL)
		if err != nil {
			return sent, nil, err
		}
		lockers = append(lockers, l)
	}
	const key = "bench:idle"
	unlock, err := lockers[0].lock(ctx, key)
	if err != nil {
		return sent, nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var waiters sync.WaitGroup
	for _, l := range lockers[1:] {
		waiters.Go(func() {
			unlock, err := l.lock(waiting, key)
			if waiting.Err() == nil {
				mu.Lock()
				ended = append(ended, cmp.Or(err, errGranted))
				mu.Unlock()
			}
			if err == nil {
				_ = unlock(context.WithoutCancel(ctx))
			}
		})
	}
	time.Sleep(min(time.Second, lasts/2)) // they have come, and are calm
	before, err := on.traffic(ctx, p.command)
	if err == nil {
		time.Sleep(lasts)
		sent, err = on.traffic(ctx, p.command)
	}
	cancel()
	if !returned(&waiters, patience) {
		return sent, nil, errHung
	}
	if err != nil {
		return sent, nil, err
	}
	return sent.since(before), ended, unlock(ctx)
}
