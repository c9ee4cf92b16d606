package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/testutil"
)

// No process reaches a node for a time.

var awayShort = scene{name: "away for 3 s", takes: 30 * time.Second, rows: []*row{{
	what: "**Redis is away for 3 s**",
	promises: []promise{
		{ofHolder, "Notices nothing", keeps("holder")},
		{ofHolder, "A cron job whose run ends meanwhile records that end when Redis is back: the tick does not start again", func(s seen, _ figures) finding {
			run, ok := s.first(func(e event) bool { return e.Kind == isWork && strings.HasPrefix(e.Op, "ends") })
			if !ok {
				return bad("no run")
			}
			starts := s.all(func(e event) bool { return e.Kind == isWork && e.Op == run.Op && e.Tick.Equal(run.Tick) })
			if len(starts) > 1 {
				return unsafe("started %d times", len(starts))
			}
			if _, ok := s.first(func(e event) bool { return e.Kind == isWork && e.Op == run.Op && e.Tick.After(run.Tick) }); !ok {
				return bad("no later tick was started")
			}
			return good("started once")
		}},
		{ofCallers, "Callers wait", waits("free", func(s seen) time.Time { return s.healed("") })},
		{ofCallers, "New locks are granted within # s of the beginning", func(s seen, f figures) finding {
			e, ok := s.first(is(isGranted, "free"))
			if !ok {
				return bad("not granted")
			}
			return within(e.At.Sub(s.struck("")), 0, f[0])
		}},
	},
}}, play: func(p *play) error {
	job := p.key("ends")
	return inOrder(
		func() error { return p.holds("a", "holder", p.key("account")) },
		func() error {
			return p.everybody(order{Do: addJob, Op: job, Period: 5 * time.Second, Work: 3 * time.Second, Starts: 3})
		},
		func() error { _, err := p.await("a run", patience, is(isWork, job)); return err },
		func() error { return p.sleep(2 * time.Second) }, // it ends in the outage
		func() error { p.awayFrom(p.coin()); return nil },
		func() error { return p.orders("b", order{Do: acquire, Op: "free", Key: p.key("free")}) },
		func() error { return p.sleep(3 * time.Second) },
		p.back,
		func() error { return p.sleep(15 * time.Second) },
	)
}}

// awayFrom makes all nodes refuse connections, or stop (SIGSTOP).
func (p *play) awayFrom(stop bool) {
	p.strikes("")
	if stop {
		_ = p.onNodes([]int{0, 1, 2}, (*testutil.Server).Pause)
		return
	}
	p.unreachable(names, []int{0, 1, 2}, false)
}

// back ends the absence of nodes.
func (p *play) back() error {
	err := p.onNodes([]int{0, 1, 2}, (*testutil.Server).Resume)
	for _, name := range names {
		for i := range p.proxies[name] {
			p.proxies[name][i].Refuse(false)
		}
	}
	p.heals("")
	return err
}

const (
	awayTime = 30 * time.Second
	lastTry  = 12 * time.Second // the time that a last attempt has
)

var awayLong = scene{name: "away for 30 s", takes: 50 * time.Second, rows: []*row{
	{
		what: "**Redis is away for 30 s**",
		promises: []promise{
			{ofHolder, "Its context ends after # to # s, with `ErrLost`", ends("holder")},
			{ofCallers, "`Acquire` returns `ErrUnavailable` after # to # s", fails("caller", "unavailable")},
			{ofCallers, "Locks are granted within a second of the return of Redis", backWithin("insists", time.Second)},
			{ofCallers, "If the servers did not restart, there is no quarantine", backWithin("insists", time.Second)},
		},
	},
	{
		what: "… with HTTP requests",
		promises: []promise{
			{ofHolder, "503 (`lost`) when its handler returns", func(s seen, _ figures) finding {
				e, ok := s.first(is(isReply, "stays"))
				if !ok || e.Status != http.StatusServiceUnavailable || !strings.Contains(e.Text, "lost") {
					return bad("%d %s %s", e.Status, e.Text, e.Err)
				}
				return good("503 after %s", seconds(e.At.Sub(s.struck(""))))
			}},
			{ofCallers, "503 after # s (`WithMaxWait`), `Retry-After: 1`", all(
				reply("free", http.StatusServiceUnavailable, figure(0), figure(0), "Retry-After: 1"),
				reply("held elsewhere", http.StatusServiceUnavailable, figure(0), figure(0), "Retry-After: 1"),
				reply("held, late", http.StatusServiceUnavailable, figure(0), figure(0), "Retry-After: 1"))},
			{ofCallers, "At the replica whose handler has the key they get 409 instead, also after # s, until the context of that handler has ended", all(
				busyWhileHeld("held, before"), busyWhileHeld("held"))},
			{ofCallers, "200 once Redis is back", reply("free, back", http.StatusOK, fixed(0), fixed(time.Second))},
			{ofCallers, "and with an Idempotency-Key", reply("with a key", http.StatusServiceUnavailable, fixed(5*time.Second), fixed(5*time.Second), "Retry-After: 1")},
		},
	},
	{
		what: "… with cron jobs",
		promises: []promise{
			{ofHolder, "The context of a run ends", func(s seen, f figures) finding { return endsWork(s.named("runs"))(s, f) }},
			{ofCallers, "No tick starts", noTick},
			{ofCallers, "The latest one starts within # s of the return if it is at most a minute late (`WithGrace`)", latestTick},
			{ofCallers, "older ones are superseded", superseded},
		},
	},
	{
		what: "… with asynq tasks",
		promises: []promise{
			{ofHolder, "The context of the handler ends", endsWork("task")},
			{ofCallers, "No task runs", func(s seen, _ figures) finding {
				e, ok := s.first(is(isWork, "waits"))
				switch {
				case !ok:
					return bad("it did not run after the return either")
				case e.At.Before(s.healed("")):
					return unsafe("ran %s before the return", seconds(s.healed("").Sub(e.At)))
				}
				return good("ran %s after the return", seconds(e.At.Sub(s.healed(""))))
			}},
			{ofCallers, "A task waits for up to # s and goes back to asynq without losing a retry, again and again", goesBack},
			{ofCallers, "A last attempt waits until a second before its deadline and is archived", func(s seen, _ figures) finding {
				e, ok := s.first(is(isTask, "last").and(func(e event) bool { return e.Text == "archived" }))
				if !ok {
					return bad("not archived")
				}
				asked, _ := s.first(is(isAsked, "last"))
				return within(e.At.Sub(asked.At), asked.Took-time.Second, asked.Took)
			}},
		},
	},
}, play: func(p *play) error {
	held := p.key("held")
	runs, ticks := p.key("runs"), p.key("ticks")
	put := func(op, to, key, query string) func() error {
		return func() error {
			p.request(call{op: op, to: to, method: http.MethodPut, path: "/orders/" + key + "?op=" + strings.ReplaceAll(op, " ", "") + query})
			return nil
		}
	}
	wait := func(d time.Duration) func() error {
		return func() error { return p.sleep(time.Until(p.struckAt().Add(d))) }
	}
	return inOrder(
		func() error { return p.holds("a", "holder", p.key("account")) },
		func() error {
			return p.everybody(order{Do: addJob, Op: runs, Period: time.Hour, Grace: time.Hour, Work: time.Minute, Starts: 1})
		},
		func() error {
			return p.everybody(order{Do: addJob, Op: ticks, Period: 5 * time.Second, Work: 100 * time.Millisecond, Starts: 1})
		},
		func() error { return p.task("task", charge{Order: p.key("task"), Work: time.Minute}, 0) },
		put("stays", "b", held, "&work=1m"),
		func() error { _, err := p.await("a task", patience, is(isWork, "task")); return err },
		func() error { _, err := p.await("a request", patience, is(isWork, "stays")); return err },
		p.settle,
		put("held, before", "b", held, ""),
		func() error { return p.sleep(500 * time.Millisecond) }, // it waits when the nodes go away
		func() error { p.awayFrom(p.coin()); return nil },
		put("held", "b", held, ""),
		put("held elsewhere", "c", held, ""),
		func() error { return p.orders("b", order{Do: acquire, Op: "caller", Key: p.key("caller")}) },
		func() error { return p.orders("c", order{Do: insist, Op: "insists", Key: p.key("insists")}) },
		put("free", "b", p.key("free"), ""),
		func() error {
			p.request(call{op: "with a key", to: "c", method: http.MethodPost, path: "/orders/" + p.key("free") + "/charges?op=key", key: p.key("key")})
			return nil
		},
		func() error { return p.task("waits", charge{Order: p.key("waits")}, 0) },
		func() error {
			has := time.Until(time.Now().Truncate(time.Second).Add(lastTry)) // asynq keeps whole seconds
			return p.task("last", charge{Order: p.key("last")}, has, asynq.MaxRetry(0))
		},
		wait(12*time.Second),
		put("held, late", "b", held, ""), // the lease is over by now
		wait(awayTime),
		p.back,
		put("free, back", "b", p.key("free"), ""),
		func() error {
			p.see(10*time.Second, is(isWork, "waits"))
			return p.sleep(7 * time.Second)
		},
	)
}}

// busyWhileHeld judges a request for a key that a handler of the same process has: by one figure, how long it waits.
func busyWhileHeld(op string) judge {
	return func(s seen, f figures) finding {
		e, ok := s.first(is(isReply, op))
		ended, ok2 := s.first(is(isDone, "stays"))
		if !ok || !ok2 {
			return bad("%s: no reply, or the handler did not end", op)
		}
		status := http.StatusConflict
		if e.At.After(ended.At) { // it has asked the nodes since, unless that takes longer
			status = http.StatusServiceUnavailable
		}
		if e.Status != status && !(e.Status == http.StatusConflict && e.At.Before(ended.At.Add(nodeTimeout))) {
			return bad("%s: %d, and the context of the handler ended %s before", op, e.Status, seconds(e.At.Sub(ended.At)))
		}
		return reply(op, e.Status, figure(0), figure(0))(s, f)
	}
}

// nodeTimeout is how long a request to a node may take.
const nodeTimeout = time.Second

// task enqueues a task that has a time if that is not 0, and follows what asynq shows of it.
func (p *play) task(op string, of charge, has time.Duration, opts ...asynq.Option) error {
	of.Op = op
	p.world.add(event{Kind: isAsked, Op: op, Took: has})
	if has > 0 {
		opts = append(opts, asynq.Deadline(time.Now().Add(has)))
	}
	id, err := p.client.enqueue(of, opts...)
	if err != nil {
		return err
	}
	p.background(func(ctx context.Context) { p.client.follow(ctx, op, id) })
	return nil
}

// named returns the name of the job whose name begins so.
func (s seen) named(begin string) string {
	e, _ := s.first(func(e event) bool { return e.Kind == isWork && strings.HasPrefix(e.Op, begin) })
	return e.Op
}

// backWithin judges that a call was granted its key soon after the return of the nodes, and not before.
func backWithin(op string, limit time.Duration) judge {
	return func(s seen, _ figures) finding {
		e, ok := s.first(is(isGranted, op))
		if !ok {
			return bad("not granted")
		}
		return within(e.At.Sub(s.healed("")), 0, limit)
	}
}

// begins returns the starts of a job, in order.
func (s seen) begins(job string) []event { return s.all(is(isWork, job)) }

func noTick(s seen, _ figures) finding {
	for _, e := range s.begins(s.named("ticks")) {
		if e.At.After(s.struck("").Add(rounding)) && e.At.Before(s.healed("")) {
			return bad("a start %s after the beginning", seconds(e.At.Sub(s.struck(""))))
		}
	}
	return good("none")
}

const tickPeriod = 5 * time.Second // of the job "ticks"

func latestTick(s seen, f figures) finding {
	latest := s.healed("").Truncate(tickPeriod)
	for _, e := range s.begins(s.named("ticks")) {
		if !e.At.Before(s.healed("")) {
			if e.Tick.Before(latest) {
				return bad("started %s, and the latest was %s", e.Tick.Format(time.TimeOnly), latest.Format(time.TimeOnly))
			}
			return within(e.At.Sub(later(s.healed(""), e.Tick)), 0, f[0])
		}
	}
	return bad("no start after the return")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func superseded(s seen, _ figures) finding {
	latest := s.healed("").Truncate(tickPeriod)
	for _, e := range s.begins(s.named("ticks")) {
		if e.At.After(s.healed("")) && e.Tick.Before(latest) {
			return bad("tick %s started after the return", e.Tick.Format(time.TimeOnly))
		}
	}
	return good("did not start")
}

// goesBack judges that a task waited in a worker, was given back, and so on, and that no retry was counted. asynq may
// deliver a task again between two looks at it. Then only its last error has changed.
func goesBack(s seen, f figures) finding {
	var back int
	var began time.Time
	var reason string
	for _, e := range s.all(is(isTask, "waits")) {
		if e.Status > 0 {
			return bad("%d retries were counted", e.Status)
		}

		isActive := e.Text == "active"
		isReturned := e.Text == "retry" || e.Text == "pending"
		wasGivenBack := isReturned || isActive && e.Reason != reason
		if wasGivenBack && !began.IsZero() {
			back++
			if waited := within(e.At.Sub(began), 0, f[0]); waited.broken {
				return waited
			}
		}

		reason = e.Reason
		began = time.Time{}
		if isActive {
			began = e.At
		}
	}
	if back < 2 {
		return bad("given back %d times", back)
	}
	return good("given back %d times, no retry counted", back)
}

var workerKilled = scene{name: "worker killed", takes: 185 * time.Second, rows: []*row{{
	what: "**A process with asynq workers is killed**",
	promises: []promise{
		{ofCallers, "Its keys are free after # to # s", grants("waiter")},
		{ofCallers, "asynq finds its tasks after # to # s and counts a retry of each", func(s seen, f figures) finding {
			found, ok := s.first(is(isTask, "task").and(after(s.struck(""))).and(func(e event) bool { return e.Text == "retry" }))
			if !ok || found.Status != 1 {
				return bad("not found, or %d retries counted", found.Status)
			}
			return within(found.At.Sub(s.struck("")), f[0], f[1])
		}},
		{ofCallers, "asynq's retry delay comes on top, # to # s for a first retry", func(s seen, f figures) finding {
			found, ok := s.first(is(isTask, "task").and(after(s.struck(""))).and(func(e event) bool { return e.Text == "retry" }))
			if !ok {
				return bad("not found")
			}
			return within(found.Tick.Sub(found.At), f[0], f[1])
		}},
	},
}}, play: func(p *play) error {
	return inOrder(
		func() error { return p.task("task", charge{Order: p.key("task"), Work: 10 * time.Minute}, 0) },
		func() error {
			work, err := p.await("a task", patience, is(isWork, "task"))
			if err != nil {
				return err
			}
			if err := p.settle(); err != nil {
				return err
			}
			others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == work.Process })
			if err := p.orders(others[0], order{Do: acquire, Op: "waiter", Key: work.Key}); err != nil {
				return err
			}
			p.strikes("")
			return p.kill(work.Process)
		},
		func() error {
			p.see(14*time.Second, is(isGranted, "waiter"))
			p.see(125*time.Second, is(isTask, "task").and(func(e event) bool { return e.Text == "retry" }))
			return nil
		},
	)
}}

var repeated = scene{name: "repeated", takes: 45 * time.Second, rows: []*row{{
	what: "**A client repeats a request**",
	promises: []promise{
		{ofHolder, "Does not run, if a response was recorded: also at another replica, port or name of the service", ranTimes(1, "first")},
		{ofHolder, "Runs again after a response that invites a retry (401, 403, 407, 408, 423, 425, 429, 499, 5xx, `Retry-After`), a panic, a loss, or the death of its process", func(s seen, f figures) finding {
			var all []finding
			for _, op := range retried() {
				all = append(all, ranTimes(2, op)(s, f))
			}
			return both(all...)
		}},
		{ofCallers, "The recorded response, for 24 h (`WithRetention`)", repeats},
		{ofCallers, "409 while the first request runs", reply("beside", http.StatusConflict, fixed(0), fixed(5*time.Second))},
		{ofCallers, "422 if the request is another one", reply("other", http.StatusUnprocessableEntity, fixed(0), fixed(time.Second))},
	},
}}, play: func(p *play) error {
	post := func(op, as, to, query string, more ...func(*call)) event {
		of := call{op: as, to: to, method: http.MethodPost, key: p.key(op), path: "/orders/" + p.key(op) + "/charges?op=" + op + query}
		for _, change := range more {
			change(&of)
		}
		return p.client.do(p.ctx, of)
	}
	// again repeats a request until it succeeds: it is refused while the lease of the first one is not over.
	again := func(op, to string) error {
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
			if post(op, op+" again", to, "").Status == http.StatusOK {
				// The reply may come before the event of the process.
				p.see(patience, is(isWork, op).and(func(e event) bool { return e.Process == to }))
				break
			}
			if err := p.sleep(time.Second); err != nil {
				return err
			}
		}
		return nil
	}
	return inOrder(
		func() error {
			p.strikes("")
			post("first", "first", "a", "&task=1")
			post("first", "repeated", "b", "&task=1", func(c *call) { c.host = "shop.example:8443" })
			post("first", "repeated", "c", "&task=1")
			post("first", "other", "b", "&task=1", func(c *call) { c.body = "another" })
			return nil
		},
		func() error {
			for _, status := range inviting {
				op := fmt.Sprint("status-", status)
				post(op, op, "a", fmt.Sprint("&status=", status))
				post(op, op, "b", fmt.Sprint("&status=", status))
			}
			post("retry-after", "retry-after", "a", "&status=400&retry=1")
			post("retry-after", "retry-after", "b", "&status=400&retry=1")
			post("panic", "panic", "a", "&panic=1")
			post("panic", "panic", "b", "&panic=1")
			return nil
		},
		func() error {
			p.background(func(context.Context) { post("lost", "lost", "a", "&work=12s") })
			if _, err := p.await("a request", patience, is(isWork, "lost")); err != nil {
				return err
			}
			if err := p.revoke("lost"); err != nil {
				return err
			}
			p.see(10*time.Second, is(isReply, "lost"))
			return again("lost", "b")
		},
		func() error {
			p.background(func(context.Context) { post("death", "death", "a", "&work=1m") })
			if _, err := p.await("a request", patience, is(isWork, "death")); err != nil {
				return err
			}
			post("death", "beside", "b", "&work=1m")
			return errors.Join(p.kill("a"), again("death", "c"))
		},
	)
}}

// inviting are the statuses that invite a retry.
var inviting = []int{401, 403, 407, 408, 423, 425, 429, 500, 503}

// retried returns the names of requests that run twice.
func retried() (ops []string) {
	for _, status := range inviting {
		ops = append(ops, fmt.Sprint("status-", status))
	}
	return append(ops, "retry-after", "panic", "lost", "death")
}

// ranTimes judges how often the handler ran for a request.
func ranTimes(n int, op string) judge {
	return func(s seen, _ figures) finding {
		ran := len(s.all(is(isWork, op)))
		switch {
		case ran > n:
			return unsafe("%s: ran %d times", op, ran)
		case ran < n:
			return bad("%s: ran %d times", op, ran)
		}
		return good("ran %d times", ran)
	}
}

func repeats(s seen, _ figures) finding {
	first, ok := s.first(is(isReply, "first"))
	again := s.all(is(isReply, "repeated"))
	if !ok || len(again) != 2 {
		return bad("no reply")
	}
	for _, e := range again {
		text, replayed := strings.CutPrefix(e.Text, "Idempotent-Replayed: true\n")
		if !replayed || text != first.Text || e.Status != first.Status {
			return bad("%d %q instead of %d %q", e.Status, e.Text, first.Status, first.Text)
		}
	}
	return good("repeated")
}
