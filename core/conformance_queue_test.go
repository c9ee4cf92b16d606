package core

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// The rows of the conformance table about calls that wait for a key.

var conformanceQueue = []conformanceCase{
	{name: "queue: who waits is in it, and the resource is marked", play: `
		! set e=T+60s i=b f=7 ttl=1h
		a acquire -> held rest=T+60s+1-now
		= e=T+60s i=b f=7
		=w
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		= e=T+60s i=b f=7 waited=1 ttl=1h
		=w a
		c acquire -> held rest=T+60s+1-now
		d acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		=w a d`},
	{name: "queue: in the order in which the calls began", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U-1s -> held rest=T+60s+1-now place=1
		=w c a`},
	{name: "queue: another attempt of the same call has its place", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		d acquire wait ticket=U for=a -> held rest=T+60s+1-now place=1
		=w a c`},
	{name: "queue: a key that is released is kept for who waits", frozen: true, play: `
		b acquire -> granted token=wall expiry=now+10s
		a acquire wait -> held rest=10001 place=1
		b release drop=b -> granted
		= f=b waited=1 z=T
		c acquire -> reserved rest=50
		d acquire wait ticket=U+1 -> reserved rest=50 place=2
		=w a d
		a acquire wait -> granted token=b+1 expiry=now+10s
		= e=now+10s i=a f=a p=b waited=1 z=T
		=w d`},
	{name: "queue: for 50 ms each, of those before, and 150 ms in all", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		c acquire wait ticket=U+2 -> held rest=2 place=2
		d acquire wait ticket=U+3 -> held rest=2 place=3
		x acquire wait ticket=U+4 -> held rest=2 place=4
		y acquire wait ticket=U+5 -> held rest=2 place=5
		! sleep 2ms
		z acquire -> reserved rest=149
		y acquire wait ticket=U+5 -> reserved rest=149 place=5
		x acquire wait ticket=U+4 -> reserved rest=149 place=4
		d acquire wait ticket=U+3 -> reserved rest=99 place=3
		c acquire wait ticket=U+2 -> reserved rest=49 place=2
		! sleep 48ms
		c acquire wait ticket=U+2 -> reserved rest=1 place=2
		! sleep 1ms
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w d x y
		c release drop=c waited -> granted
		=w d x y`},
	{name: "queue: who does not wait comes when all of them had their turn", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait -> held rest=2 place=1
		! sleep 50ms
		c acquire -> reserved rest=1
		! sleep 1ms
		c acquire -> granted token=wall expiry=now+10s
		=w`},
	{name: "queue: no turn lasts for as long as the clock was set back", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait -> held rest=60001 place=1
		! set e=0 z=T+8s
		c acquire -> granted token=wall expiry=now+10s`},
	{name: "queue: an attempt that is taken back begins no new turns", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		c acquire wait ticket=U+2 -> held rest=2 place=2
		d acquire wait ticket=U+3 -> held rest=2 place=3
		! sleep 51ms
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w d
		c release undo waits -> granted
		= f=7 waited=1 z=T+1
		=w c d
		x acquire -> reserved rest=50`, single: true},
	{name: "queue: nobody who came while turns were not counted yet is passed", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U+1 -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+2 -> held rest=T+60s+1-now place=2
		b release undo -> granted
		c acquire wait ticket=U+2 -> granted token=wall expiry=now+10s
		=w a`, single: true},
	{name: "queue: a place that is given back to the only one", frozen: true, play: `
		! set e=T+1 i=b f=7
		a acquire wait ticket=U+1 -> held rest=2 place=1
		! sleep 2ms
		a acquire wait ticket=U+1 for=a -> granted token=wall expiry=now+10s
		=w
		a release undo waits -> granted
		= f=7 waited=1 z=T+1
		=w a`, single: true},
	{name: "queue: who has stopped waiting leaves it", play: `
		! set e=T+60s i=b f=7
		a acquire wait ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		a release quits waited -> gone
		=w c
		= e=T+60s i=b f=7 waited=1
		c release quits waited -> gone
		=w
		= e=T+60s i=b f=7`},
	{name: "queue: the end of a lease takes its own call out", play: `
		! set e=T+60s i=b f=7
		b2 acquire wait for=b ticket=U -> held rest=T+60s+1-now place=1
		c acquire wait ticket=U+1 -> held rest=T+60s+1-now place=2
		b release drop=7 waited -> granted
		=w c`},
	{name: "queue: nobody in it any more", play: `
		! set e=T+60s i=b f=7 waited z=5
		b release drop=7 -> granted
		= f=7`},
	{name: "queue: something else has its name", play: `
		! set e=T+60s i=b f=7
		! noqueue
		a acquire wait -> held rest=T+60s+1-now
		= e=T+60s i=b f=7`},
	{name: "queue: a completion ends the hold", frozen: true, play: `
		! set e=T+60s i=b f=7
		a acquire wait -> held rest=60001 place=1
		b complete ballot=7 origin=7 result=text -> granted
		= f=7 ballot=7 kept=now+24h origin=7 result=text waited=1 z=T
		=w a
		a acquire wait -> done ballot=7 kept=24h origin=7 result=text`},
	{name: "queue: a renewal leaves it alone", play: `
		! set e=T+60s i=b f=7 waited z=5
		b renew token=7 confirmed=T+60s -> granted expiry=T+60s
		= e=T+60s i=b f=7 waited=1 z=5`},
}

// A scene checks votes and the data in Redis.

func (s *scene) checkVote(line string, want map[string]string, v quorum.Vote) {
	s.t.Helper()
	if _, ok := want[Verdict(v.Verdict).String()]; !ok {
		s.t.Fatalf("%s\n\tgot %v: %+v", line, Verdict(v.Verdict), v)
	}
	delete(want, Verdict(v.Verdict).String())
	got := map[string]int64{"token": int64(v.Token), "expiry": v.Expiry.Millis(), "rest": v.Remaining.Milliseconds(), "place": int64(v.Place)}
	if v.Revoked {
		got["revoked"] = 1
	}
	if v.Refused {
		got["refused"] = 1
	}

	text := map[string]string{"carried": v.Hint, "claim": v.Claim}
	if v.Memory != "" && v.Memory != s.memory() {
		s.t.Errorf("%s\n\tmemory is %s, want %s", line, v.Memory, s.memory())
	}
	if want["longest"] != "" {
		got["longest"] = v.Longest.Milliseconds()
	}
	if r := v.Record; r != nil {
		maps.Copy(got, map[string]int64{"ballot": int64(r.Ballot), "kept": r.Retention.Milliseconds(), "origin": int64(r.Token)})
		text["result"] = string(r.Result)
	}
	s.compare(line, want, got, text)
}

// compare checks every field of got and text. A field that want does not name must be zero.
func (s *scene) compare(line string, want map[string]string, got map[string]int64, text map[string]string) {
	s.t.Helper()
	for name, n := range got {
		expr, above := strings.CutPrefix(want[name], ">")
		at := s.eval(expr)
		if above && n <= at.lo || !above && (n < at.lo || n > at.hi) {
			s.t.Errorf("%s\n\t%s is %d, want %d to %d (%s)", line, name, n, at.lo, at.hi, want[name])
		}
		delete(want, name)
	}

	for name, str := range text {
		expect := want[name]
		switch {
		case (name == "i" || name == "r") && strings.Trim(expect, wire.CooldownPrefix) != "":
			whose, rests := strings.CutPrefix(expect, wire.CooldownPrefix)
			expect = s.lease(whose).name()
			if rests {
				expect = wire.CooldownPrefix + expect
			}
		case name == "c" && expect != "":
			owner, carried, _ := strings.Cut(expect, ":")
			expect = s.lease(owner).name() + " " + carriedHint(carried)
		case expect == "mark":
			g, _ := s.guard()
			expect = g.Mark
		case name == "result":
			expect = conformanceResults[expect]
		case expect == "live":
			expect = s.history()
		}
		if str != expect {
			s.t.Errorf("%s\n\t%s is %.80q, want %.80q", line, name, str, expect)
		}
		delete(want, name)
	}

	if len(want) != 0 {
		s.t.Errorf("%s\n\tnot there: %v", line, want)
	}
}

var replid = regexp.MustCompile(`master_replid:(\w+)`)

func (s *scene) history() string {
	return replid.FindStringSubmatch(must(s.client.Info(context.Background(), "replication").Result()))[1]
}

// memory returns the name of the node's memory, as its replies give it.
func (s *scene) memory() string {
	if !s.l.p.Guarded {
		return wire.NoMemory
	}
	g, _ := s.guard()
	return s.history() + "." + g.Since + g.New
}

func (s *scene) checkResource(line string, want map[string]string) {
	s.t.Helper()
	key := s.l.e.Keys.Resource(conformanceKey)
	value, err := s.client.Get(context.Background(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}

	r := must(testutil.ParseResource(value))
	if _, none := want["none"]; none {
		if value != "" {
			s.t.Errorf("%s\n\tthe resource is %+v", line, r)
		}
		return
	}

	if expr, ok := want["ttl"]; ok {
		s.checkTTL(line, key, expr)
		delete(want, "ttl")
	}

	waited := int64(0)
	if r.MayHaveWaiter {
		waited = 1
	}
	got := map[string]int64{"waited": waited, "e": r.Expiry, "f": r.Counter, "p": max(r.Before, 0), "u": r.TurnUntil, "z": r.Ended, "ballot": 0, "kept": 0, "origin": 0}
	text := map[string]string{"i": r.Owner, "c": "", "r": r.Next, "result": ""}
	if r.Expiry == 0 {
		text["i"] = "" // the owner of a spent lease stays stored
	}
	if r.Metadata != "" {
		text["c"] = r.Owner + " " + r.Metadata
	}
	if text["i"] != "" && want["p"] == "" {
		got["p"] = 0
	}
	if r.Record != nil {
		got["ballot"], got["kept"], got["origin"], text["result"] = r.Record.Ballot, r.Record.KeptUntil, r.Record.Origin, r.Record.Result
	}

	s.compare(line, want, got, text)
}

// checkQueue checks that exactly these calls wait, in this order.
func (s *scene) checkQueue(line string, want []string) {
	s.t.Helper()
	key := s.l.e.Keys.Waiters(conformanceKey)
	got := must(s.client.ZRange(context.Background(), key, 0, -1).Result())
	for i, name := range want {
		want[i] = s.member(name)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s\n\tthe queue is %q, want %q", line, got, want)
	}
	if left := must(s.client.PTTL(context.Background(), key).Result()); len(got) > 0 && (left <= 0 || left > s.l.p.MaxTTL) {
		s.t.Errorf("%s\n\tthe queue lives for %v", line, left)
	}
}

// checkTTL checks that the key expires at that time after the last script. Redis expires keys by a clock that it reads
// when a script begins, so the times may differ by as long as the machine is busy elsewhere.
func (s *scene) checkTTL(line, key, expr string) {
	s.t.Helper()
	left := must(s.client.PTTL(context.Background(), key).Result()).Milliseconds()
	lo, hi := s.eval(expr).lo+s.names["now"].lo, s.eval(expr).hi+s.names["now"].hi
	if ends, off := s.time()/1000+left, int64(2000); left < 0 || ends < lo-off || ends > hi+off {
		s.t.Errorf("%s\n\t%q lives for %dms, want %s", line, key, left, expr)
	}
}

func (s *scene) checkGuard(line string, want map[string]string) {
	s.t.Helper()
	g, ok := s.guard()
	if _, none := want["none"]; none {
		if ok {
			s.t.Errorf("%s\n\tthe guard record is %q", line, g)
		}
		return
	}
	got := map[string]int64{"v": int64(len(g.New))}
	got["s"], _ = strconv.ParseInt(g.Since, 10, 64)
	got["m"], _ = strconv.ParseInt(g.Longest, 10, 64)
	to, _, _ := strings.Cut(strings.TrimPrefix(g.Mark, ">"), "@")
	got["k"], _ = strconv.ParseInt(to, 10, 64)
	s.compare(line, want, got, map[string]string{"h": g.History, "n": g.Claim})
	if ttl := must(s.client.PTTL(context.Background(), s.l.e.Keys.Guard(0)).Result()); ttl != -1 {
		s.t.Errorf("%s\n\tthe guard record ends in %v, want never", line, ttl)
	}
}

// checkNote checks the note beside the guard record. It says since when the longest lease in use is known.
func (s *scene) checkNote(line string, want map[string]string) {
	s.t.Helper()
	key := s.l.e.Keys.GuardsQuery(0)[2].(string)
	text, err := s.client.Get(context.Background(), key).Result()
	if _, none := want["none"]; none {
		if !errors.Is(err, redis.Nil) {
			s.t.Errorf("%s\n\tthe note is %q, %v", line, text, err)
		}
		return
	}
	got := map[string]int64{}
	longest, since, _ := strings.Cut(text, " ")
	got["m"], _ = strconv.ParseInt(longest, 10, 64)
	got["s"], _ = strconv.ParseInt(since, 10, 64)
	s.compare(line, want, got, nil)
	if ttl := must(s.client.PTTL(context.Background(), key).Result()); ttl != -1 {
		s.t.Errorf("%s\n\tthe note ends in %v, want never", line, ttl)
	}
}

// conformanceEnd has the value of a tombstone for each end of an attempt.
var conformanceEnd = map[string]string{"released": "1", "completed": "2", "refused": "3", "revoked": "4"}

func (s *scene) checkTombstones(line string, want map[string]string) {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.leases)) {
		key := s.tombstone(name)
		value, expected := want[name]
		expr, how, _ := strings.Cut(value, ":")
		exists := must(s.client.Exists(context.Background(), key).Result()) == 1
		if exists != expected {
			s.t.Errorf("%s\n\ttombstone of %s: %v", line, name, exists)
		} else if exists {
			s.checkTTL(line, key, expr)
			if end := s.client.Get(context.Background(), key).Val(); how != "" && end != conformanceEnd[how] {
				s.t.Errorf("%s\n\tthe tombstone of %s is %q, want %q: %s", line, name, end, conformanceEnd[how], how)
			}
		}
	}
}
