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

// What a scene compares: votes, and what is in Redis.

func (s *scene) checkVote(line string, want map[string]string, v quorum.Vote) {
	s.t.Helper()
	if _, ok := want[Verdict(v.Verdict).String()]; !ok {
		s.t.Fatalf("%s\n\tgot %v: %+v", line, Verdict(v.Verdict), v)
	}
	delete(want, Verdict(v.Verdict).String())
	got := map[string]int64{"token": int64(v.Token), "expiry": v.Expiry.Millis(), "rest": v.Rest.Milliseconds(), "place": int64(v.Place)}
	text := map[string]string{"carried": v.Hint, "claim": v.Claim}
	if v.Memory != "" && v.Memory != s.memory() {
		s.t.Errorf("%s\n\tmemory is %s, want %s", line, v.Memory, s.memory())
	}
	if want["longest"] != "" {
		got["longest"] = v.Longest.Milliseconds()
	}
	if r := v.Record; r != nil {
		maps.Copy(got, map[string]int64{"ballot": int64(r.Ballot), "kept": r.Rest.Milliseconds(), "origin": int64(r.Token)})
		text["result"] = string(r.Result)
	}
	s.compare(line, want, got, text)
}

// compare demands every field, named or not.
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
		case (name == "i" || name == "r") && strings.Trim(expect, wire.KeptTaken) != "":
			whose, rests := strings.CutPrefix(expect, wire.KeptTaken)
			expect = s.lease(whose).name()
			if rests {
				expect = wire.KeptTaken + expect
			}
		case name == "c" && expect != "":
			owner, carried, _ := strings.Cut(expect, ":")
			expect = s.lease(owner).name() + " " + carriedHint(carried)
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

// memory is what the node remembers, as its replies name it.
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
	if r.Waited {
		waited = 1
	}
	got := map[string]int64{"waited": waited, "e": r.Expiry, "f": r.Counter, "p": max(r.Before, 0), "u": r.TurnUntil, "z": r.Ended, "ballot": 0, "kept": 0, "origin": 0}
	text := map[string]string{"i": r.Owner, "c": "", "r": r.Next, "result": ""}
	if r.Expiry == 0 {
		text["i"] = "" // it stays, spent
	}
	if r.Carried != "" {
		text["c"] = r.Owner + " " + r.Carried
	}
	if text["i"] != "" && want["p"] == "" {
		got["p"] = 0
	}
	if r.Record != nil {
		got["ballot"], got["kept"], got["origin"], text["result"] = r.Record.Ballot, r.Record.Kept, r.Record.Origin, r.Record.Result
	}
	s.compare(line, want, got, text)
}

// checkQueue demands the calls that wait, the first first.
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

// checkTTL: the key expires that long after the last script. Redis expires by a clock it reads when a script
// begins, so the two differ by as long as the machine is busy elsewhere.
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
	s.compare(line, want, got, map[string]string{"h": g.History, "n": g.Claim})
	if ttl := must(s.client.PTTL(context.Background(), s.l.e.Keys.Guard(0)).Result()); ttl != -1 {
		s.t.Errorf("%s\n\tthe guard record ends in %v, want never", line, ttl)
	}
}

func (s *scene) checkTombstones(line string, want map[string]string) {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.leases)) {
		key := s.tombstone(name)
		expr, expected := want[name]
		exists := must(s.client.Exists(context.Background(), key).Result()) == 1
		if exists != expected {
			s.t.Errorf("%s\n\ttombstone of %s: %v", line, name, exists)
		} else if exists {
			s.checkTTL(line, key, expr)
		}
	}
}
