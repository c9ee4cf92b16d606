package main

import (
	"context"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

// What happens to a process that holds a key.

var paused = scene{name: "paused", takes: 75 * time.Second, rows: []*row{{
	what: "**A holder pauses for 60 s**",
	promises: []promise{
		{ofHolder, "Its context has ended when it looks", returns(isLook, "holder", "lost", "")},
		{ofHolder, "`Release` returns `ErrLost`", returns(isReleased, "holder", "lost", "")},
		{ofHolder, "refused only by a store that checks the fencing token", refusedByStore("holder")},
		{ofCallers, "The next waiter has the key # to # s after the pause began", grants("waiter")},
	},
	left: []left{
		{ofHolder, "It must look (`ctx.Err()`) right before each write", "advice"},
	},
}}, play: func(p *play) error {
	key := p.key("account")
	return inOrder(
		func() error { return p.holds("a", "holder", key) },
		p.settle,
		func() error { return p.orders("b", order{Do: acquire, Op: "waiter", Key: key}) },
		func() error { return p.pause("a") },
		func() error {
			p.see(16*time.Second, is(isGranted, "waiter"))
			return p.sleep(time.Until(p.struckAt().Add(time.Minute)))
		},
		func() error { return p.resume("a") },
		func() error { return p.orders("a", order{Do: look, Op: "holder"}, order{Do: write, Op: "holder"}) },
		func() error {
			p.see(10*time.Second, is(isLook, "holder"))
			return p.orders("a", order{Do: release, Op: "holder"})
		},
		func() error { p.see(10*time.Second, is(isReleased, "holder")); return nil },
	)
}}

// pause stops a process.
func (p *play) pause(name string) error {
	p.world.add(event{Kind: isStruck, Text: stops, Key: name})
	of := p.process(name)
	of.paused = true
	return of.Pause()
}

func (p *play) resume(name string) error {
	of := p.process(name)
	of.paused = false
	p.heals("")
	return of.Resume()
}

// struckAt returns when the fault of a scene that has one began.
func (p *play) struckAt() time.Time {
	return seen{p.record().sorted()}.struck("")
}

// refusedByStore judges that a write which a holder made without looking was refused.
func refusedByStore(op string) judge {
	return func(s seen, _ figures) finding {
		for _, w := range writes(s.events) {
			if w.Kind == isWrite && w.Op == op {
				if w.accepted {
					return bad("token %d was accepted after %d", w.Token, w.latest)
				}
				return good("token %d refused after %d", w.Token, w.latest)
			}
		}
		return bad("no write")
	}
}

var killed = scene{name: "killed", takes: 20 * time.Second, rows: []*row{{
	what: "**A holder is killed**",
	promises: []promise{
		{ofCallers, "The next waiter has the key after # to # s", grants("waiter")},
		{ofCallers, "HTTP requests for it wait for up to # s (`WithMaxWait`), and get 409 if the key is not free by then", reply("request", http.StatusConflict, figure(0), figure(0))},
		{ofCallers, "Other keys are not affected", grantsAtOnce("free")},
	},
}}, play: func(p *play) error {
	key := p.key("account")
	return inOrder(
		func() error { return p.holds("a", "holder", key) },
		p.settle,
		func() error { return p.orders("b", order{Do: acquire, Op: "waiter", Key: key}) },
		func() error { p.strikes(""); return p.kill("a") },
		func() error {
			p.request(call{op: "request", to: "c", method: http.MethodPut, path: "/orders/" + key + "?op=request"})
			return p.orders("c", order{Do: acquire, Op: "free", Key: p.key("free")})
		},
		func() error { p.see(14*time.Second, is(isGranted, "waiter")); return nil },
	)
}}

var cutOff = scene{name: "cut off", takes: 22 * time.Second, rows: []*row{{
	what: "**A holder is cut off**",
	promises: []promise{
		{ofHolder, "Its context ends after # to # s, with `ErrLost`", ends("holder")},
		{ofCallers, "The next waiter has the key after # to # s", grants("waiter")},
		{ofCallers, "at least # s after the holder's context ended", apart},
	},
}, {
	what: "**A lease is lost while a response is streamed**",
	promises: []promise{
		{ofHolder, "Its context ends", all(endsWork("stream"), endsWork("stream2"))},
		{ofHolder, "Its writes return the loss", all(returns(isStream, "stream", "lost", ""), returns(isStream, "stream2", "lost", ""))},
		{ofCallers, "The client's connection breaks (HTTP/1.1), or its stream is reset (HTTP/2), when the handler returns: it never sees a whole answer", all(breaks("stream"), breaks("stream2"))},
	},
}}, play: func(p *play) error {
	key := p.key("account")
	hang := p.coin()
	return inOrder(
		func() error { return p.holds("a", "holder", key) },
		func() error {
			p.request(call{op: "stream", to: "a", method: http.MethodPost, path: "/orders/" + p.key("stream") + "/stream?op=stream"})
			p.request(call{op: "stream2", to: "a", method: http.MethodPost, path: "/orders/" + p.key("stream2") + "/stream?op=stream2", v2: true})
			return nil
		},
		p.settle,
		func() error { return p.orders("b", order{Do: acquire, Op: "waiter", Key: key}) },
		func() error { p.strikes(""); p.unreachable([]string{"a"}, []int{0, 1, 2}, hang); return nil },
		func() error {
			p.see(14*time.Second, is(isGranted, "waiter"))
			p.see(time.Second, is(isEnded, "holder"))
			for _, op := range []string{"stream", "stream2"} {
				p.see(4*time.Second, is(isReply, op))
				p.see(time.Second, is(isStream, op))
				p.see(time.Second, is(isDone, op))
			}
			return nil
		},
	)
}}

// apart judges how long before the next grant the context of the holder ended.
func apart(s seen, f figures) finding {
	ended, ok := s.first(is(isEnded, "holder"))
	granted, granted2 := s.first(is(isGranted, "waiter"))
	if !ok || !granted2 {
		return bad("the context did not end, or nobody got the key")
	}
	gap := granted.At.Sub(ended.At)
	if gap >= f[0]-rounding {
		return good("%s", seconds(gap))
	}
	return finding{text: seconds(gap), broken: true, excuse: max((f[0]-gap)/steps, time.Millisecond)}
}

// endsWork judges that work ended because its lease was lost.
func endsWork(op string) judge {
	return func(s seen, _ figures) finding {
		e, ok := s.first(is(isDone, op).and(after(s.struck(""))))
		if !ok || e.Err != "lost" {
			return bad("%s did not end as lost: %q", op, e.Err)
		}
		return good("after %s", seconds(e.At.Sub(s.struck(""))))
	}
}

// breaks judges that a response broke off.
func breaks(op string) judge {
	return func(s seen, _ figures) finding {
		e, ok := s.first(is(isReply, op))
		switch {
		case !ok:
			return bad("%s: the connection stays", op)
		case e.Err == "":
			return unsafe("%s: a whole response, %d", op, e.Status)
		}
		return good("broken")
	}
}

const boundedHold = 5 * time.Second

var stuck = scene{name: "stuck", takes: 45 * time.Second, rows: []*row{{
	what: "**A holder is stuck**",
	promises: []promise{
		{ofHolder, "Renews for ever", func(s seen, _ figures) finding {
			revoked := s.struck("revoked")
			if e, ok := s.first(is(isEnded, "unbounded")); ok && e.At.Before(revoked) {
				return bad("ended before it was revoked: %s", e.Reason)
			}
			began, _ := s.first(is(isGranted, "unbounded"))
			return good("for %s", seconds(revoked.Sub(began.At)))
		}},
		{ofHolder, "With `MaxHold`, its context ends on time", func(s seen, _ figures) finding {
			began, _ := s.first(is(isAsked, "bounded"))
			e, ok := s.first(is(isEnded, "bounded"))
			if !ok || e.Reason != string(core.LossMaxHold) {
				return bad("did not end: %q %s", e.Err, e.Reason)
			}
			return within(e.At.Sub(began.At), boundedHold, boundedHold)
		}},
		{ofCallers, "`Acquire` waits for ever", waits("waiter", func(s seen) time.Time { return s.struck("revoked") })},
		{ofCallers, "`TryAcquire` returns `ErrHeld`", returns(isRefused, "try", "held", "")},
		{ofCallers, "The key is free at most # s after the end that `MaxHold` sets, or after `lockctl release`", all(func(s seen, f figures) finding {
			ended, _ := s.first(is(isEnded, "bounded"))
			free, ok := s.first(is(isGranted, "waiter of bounded"))
			if !ok {
				return bad("the bounded key is not free")
			}
			return within(free.At.Sub(ended.At), 0, f[0])
		}, func(s seen, f figures) finding {
			free, ok := s.first(is(isGranted, "waiter"))
			if !ok {
				return bad("the key that was released by hand is not free")
			}
			return within(free.At.Sub(s.struck("revoked")), 0, f[0])
		})},
	},
}}, play: func(p *play) error {
	key, bounded := p.key("stuck"), p.key("bounded")
	return inOrder(
		func() error { return p.holds("a", "unbounded", key) },
		func() error { return p.holds("a", "bounded", bounded, func(o *order) { o.MaxHold = boundedHold }) },
		func() error {
			p.strikes("")
			return p.orders("b", order{Do: acquire, Op: "waiter", Key: key}, order{Do: acquire, Op: "waiter of bounded", Key: bounded})
		},
		func() error { return p.orders("c", order{Do: try, Op: "try", Key: key}) },
		func() error {
			p.see(20*time.Second, is(isGranted, "waiter of bounded"))
			return p.sleep(10 * time.Second)
		},
		func() error { return p.revoke("unbounded") },
		func() error { p.see(14*time.Second, is(isGranted, "waiter")); return nil },
	)
}}

// revoke ends the lease that a call or work began, as "lockctl release" does.
func (p *play) revoke(op string) error {
	e, err := p.await(op, patience, func(e event) bool { return (e.Kind == isGranted || e.Kind == isWork) && e.Op == op })
	if err != nil {
		return err
	}
	l, err := core.Open(urls(p.nodes...))
	if err != nil {
		return err
	}
	defer l.Close(context.Background())
	p.strikes("revoked")
	_, err = admin.Revoke(p.ctx, l, e.Key, e.Token)
	return err
}

const closeTime = 3 * time.Second

var closes = scene{name: "closes", takes: 14 * time.Second, rows: []*row{{
	what: "**A process shuts down**",
	promises: []promise{
		{ofHolder, "Ends its work", returns(isEnded, "ends", "released", "")},
		{ofHolder, "when the deadline of `Close` comes, its context ends", func(s seen, _ figures) finding {
			e, ok := s.first(is(isEnded, "stays"))
			if !ok || e.Reason != string(core.LossClosed) {
				return bad("did not end as closed: %q %s", e.Err, e.Reason)
			}
			return within(e.At.Sub(s.struck("")), closeTime, closeTime)
		}},
		{ofCallers, "The next waiter has the key at once", all(followsAtOnce("ends", "waiter"), followsAtOnce("stays", "waiter of the other"))},
	},
}}, play: func(p *play) error {
	ends, stays := p.key("ends"), p.key("stays")
	return inOrder(
		func() error { return p.holds("a", "ends", ends) },
		func() error { return p.holds("a", "stays", stays) },
		p.settle,
		func() error {
			return p.orders("b", order{Do: acquire, Op: "waiter", Key: ends}, order{Do: acquire, Op: "waiter of the other", Key: stays})
		},
		func() error { return p.sleep(500 * time.Millisecond) },
		func() error { p.strikes(""); return p.orders("a", order{Do: shutdown, Within: closeTime}) },
		func() error { return p.sleep(time.Second) },
		func() error { return p.orders("a", order{Do: release, Op: "ends"}) },
		func() error {
			p.see(10*time.Second, is(isGranted, "waiter of the other"))
			p.see(10*time.Second, is(isClosed, ""))
			p.see(10*time.Second, is(isEnded, "stays")) // it may be reported after the end of Close
			return p.kill("a")                          // its Locker is closed: the next scene has a new process
		},
	)
}}

// followsAtOnce judges that a waiter had the key right after the context of its holder had ended.
func followsAtOnce(holder, waiter string) judge {
	return func(s seen, _ figures) finding {
		ended, _ := s.first(is(isEnded, holder))
		granted, ok := s.first(is(isGranted, waiter))
		if !ok {
			return bad("%s: not granted", waiter)
		}
		return within(granted.At.Sub(ended.At), 0, atOnce-rounding)
	}
}
