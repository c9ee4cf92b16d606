package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// scanAll is all that a scan finds, sorted, and its errors.
func scanAll(ctx context.Context, l *Locker, pattern string) (found []Found, errs []error) {
	for f, err := range l.Scan(ctx, pattern) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Found) int {
		if a.Node != b.Node {
			return a.Node - b.Node
		}
		return strings.Compare(a.RedisKey, b.RedisKey)
	})
	return found, errs
}

// scan is a scan that meets no error.
func (w *world) scan(p *process, pattern string) []Found {
	w.t.Helper()
	found, errs := scanAll(w.t.Context(), p.Locker, pattern)
	if len(errs) > 0 {
		w.t.Fatalf("scan %q: %v", pattern, errs)
	}
	return found
}

func (w *world) exec(i int, args ...any) {
	w.t.Helper()
	if _, err := w.nodes[i].Exec(args...); err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
}

// named are the names of what was found on a node.
func named(found []Found, node int) (names []string) {
	for _, f := range found {
		if f.Node == node {
			names = append(names, string(f.Kind)+" "+f.RedisKey)
		}
	}
	return names
}

func wantNames(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// harmless are the commands of a scan, and of Inspect.
var harmless = []string{"SCAN", "TIME", "GETRANGE", "PTTL", "MEMORY", "ZCARD", "HMGET", "GET", "HELLO"}

// Each kind of key is found for what it is, with its facts, and nothing is changed.
func TestScan(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(Shows("who")), w.process()
		held := w.holds(p, "order:1")
		done := w.complete(w.holds(p, "order:2"), "result")
		w.everywhere(p, "order:3")
		synctest.Wait()
		w.exec(0, "SET", "lockkit:mine", "x")
		w.exec(0, "SET", "lockkit:{1}r:order:1", "x") // no bucket of a plain server
		w.exec(0, "SET", "lockkit:{0}r:", "x")
		w.exec(0, "SET", "lockkit:{0}y:order", "x")
		long := "lockkit:{0}r:" + strings.Repeat("k", maxKeyLen+1)
		w.exec(0, "SET", long, "x")
		w.exec(0, "SET", "other:{0}r:order:1", "x")
		w.exec(0, "HSET", "lockkit:{0}p", "p", "1")
		w.exec(0, "ZADD", "lockkit:{0}w:order:1", 1, "P lockkit:{0}c:process name") // who waits need not be on every node
		w.exec(0, "PEXPIRE", "lockkit:{0}w:order:1", 10_000)
		w.exec(0, "SET", "lockkit:{0}r:order:bad", "not ours")
		w.exec(0, "LPUSH", "lockkit:{0}r:order:list", "x")
		w.exec(0, "LPUSH", "lockkit:{0}w:order:list", "x")
		before := w.nodes[0].Keys()
		calls := w.nodes[0].Calls()

		found := w.scan(other, "")
		tombstones := slices.DeleteFunc(named(found, 0), func(name string) bool { return !strings.HasPrefix(name, "tombstone lockkit:{0}x:") })
		if len(tombstones) == 0 {
			t.Error("no tombstone")
		}
		wantNames(t, named(found, 0), append(tombstones, "guard lockkit:{0}g", "probe lockkit:{0}p",
			"lock lockkit:{0}r:order:1", "lock lockkit:{0}r:order:2", "lock lockkit:{0}r:order:3", "lock lockkit:{0}r:order:bad", "lock lockkit:{0}r:order:list",
			"waiters lockkit:{0}w:order:1", "waiters lockkit:{0}w:order:list",
			"foreign lockkit:mine", "foreign lockkit:{1}r:order:1", "foreign lockkit:{0}r:", "foreign lockkit:{0}y:order", "foreign "+long)...)
		facts := onFirst(t, found)
		wantLocks(t, facts, held, done)
		if got := w.inspect(other, "order:1").Nodes[0]; got.Holder == nil || *got.Holder != *facts["lockkit:{0}r:order:1"].State.Holder {
			t.Errorf("Inspect says %+v", got.Holder)
		}
		if f := facts["lockkit:{0}w:order:1"]; f.Key != "order:1" || f.Waiters != 1 || f.TTL <= 0 {
			t.Errorf("waiters: %+v", f)
		}
		if g := facts["lockkit:{0}g"]; g.TTL != -1 || g.MaxTTL != 10*time.Second || g.Key != "" {
			t.Errorf("guard: %+v", g)
		}
		if after := w.nodes[0].Keys(); !slices.Equal(before, after) {
			t.Errorf("keys were %q, are %q", before, after)
		}
		for cmd, n := range w.nodes[0].Calls() {
			if n > calls[cmd] && !slices.Contains(harmless, cmd) {
				t.Errorf("%s was called", cmd)
			}
		}
	})
}

// onFirst are those on node 0, by name.
func onFirst(t *testing.T, found []Found) map[string]Found {
	t.Helper()
	facts := map[string]Found{}
	for _, f := range found {
		if f.Node == 0 {
			facts[f.RedisKey] = f
		}
		if f.Bytes <= 0 {
			t.Errorf("%s on node %d: %d bytes", f.RedisKey, f.Node, f.Bytes)
		}
	}
	return facts
}

// wantLocks checks what is told of the locks of TestScan.
func wantLocks(t *testing.T, facts map[string]Found, held *Lease, done Record) {
	t.Helper()
	one := facts["lockkit:{0}r:order:1"]
	if h := one.State.Holder; one.Key != "order:1" || h == nil || h.Token != held.FencingToken() || h.Shown != "who" ||
		one.State.Verdict != VerdictHeld || one.State.Addr == "" || one.TTL < time.Hour {
		t.Errorf("held: %+v, holder %+v", one, h)
	}
	two := facts["lockkit:{0}r:order:2"].State
	if two.Verdict != VerdictDone || two.Holder != nil || two.Record == nil || two.Record.Token != done.Token || two.Record.Result != nil {
		t.Errorf("completed: %+v", two)
	}
	if three := facts["lockkit:{0}r:order:3"].State; three.Verdict != VerdictGone || three.Holder != nil || three.Record != nil {
		t.Errorf("resting: %+v", three)
	}
	for _, bad := range []string{"order:bad", "order:list"} {
		if s := facts["lockkit:{0}r:"+bad].State; s.Verdict != VerdictFailed || s.Err == nil || s.Holder != nil {
			t.Errorf("%s: %+v", bad, s)
		}
	}
}

// scanPatterns are globs, and which of the keys of TestScanPattern they match.
var scanPatterns = map[string][]string{
	"*":            {"order:1", "order:2", "o", "order*", "}r:order:1", "{0}r:o", `back\slash`, "[order]"},
	"order*":       {"order:1", "order:2", "order*"},
	"order:?":      {"order:1", "order:2"},
	"order:[2-9]":  {"order:2"},
	"order:1":      {"order:1"},
	`order\*`:      {"order*"},
	`order\:1`:     {"order:1"},
	"o":            {"o"},
	"*order:1":     {"order:1", "}r:order:1"},
	`back\\slash`:  {`back\slash`},
	`back\\*`:      {`back\slash`},
	`\[order]`:     {"[order]"},
	"nothing":      nil,
	"nothing*":     nil,
	"[order]":      {"o"},
	"lockkit:mine": nil,
}

// A pattern is a glob on the user's key, and finds locks and queues only.
func TestScanPattern(t *testing.T) {
	for _, prefix := range []string{"lockkit:", "a*b:", "a?b:", "a[b]c:", `a\b:`, `a\*[^-]?:`, "*", "[", `\`} {
		t.Run(prefix, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { w.wantPatterns(w.process(WithKeyPrefix(prefix)), prefix) })
		})
	}
}

func (w *world) wantPatterns(p *process, prefix string) {
	for _, key := range scanPatterns["*"] {
		w.everywhere(p, key)
	}
	for i := range w.nodes {
		w.exec(i, "SET", "a-b:{0}r:foreign", "x") // matches a?b: and a*b: taken for globs
		w.exec(i, "SET", "ab:{0}r:foreign", "x")
		w.exec(i, "SET", "abc:{0}r:foreign", "x")
		w.exec(i, "ZADD", prefix+"{0}w:order:1", 1, "P lockkit:{0}c:x y")
	}
	for pattern, want := range scanPatterns {
		var names []string
		for _, key := range want {
			names = append(names, "lock "+prefix+"{0}r:"+key)
			if key == "order:1" {
				names = append(names, "waiters "+prefix+"{0}w:"+key)
			}
		}
		found := w.scan(p, pattern)
		for i := range w.nodes {
			w.t.Logf("pattern %q on node %d", pattern, i)
			wantNames(w.t, named(found, i), names...)
		}
	}
	for _, f := range w.scan(p, "") {
		if f.Kind == FoundForeign {
			w.t.Errorf("found %s, which another prefix has", f.RedisKey)
		}
	}
}

// A key that is named is not searched for.
func TestScanOfOneKeyDoesNotScan(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.holds(p, "k*")
		if found := w.scan(p, `k\*`); len(found) != 3 || found[0].State.Holder == nil {
			t.Errorf("%+v", found)
		}
		if n := w.nodes[0].Calls()["SCAN"]; n != 0 {
			t.Errorf("%d times SCAN", n)
		}
		w.nodes[0].Hang()
		w.nodes[2].Hang()
		since := time.Now()
		if found, errs := scanAll(t.Context(), p.Locker, `k\*`); len(found) != 1 || len(errs) != 2 || time.Since(since) > p.p.nodeTimeout {
			t.Errorf("with two that hang: %+v, %v after %v", found, errs, time.Since(since))
		}
		w.nodes[0].Up()
		w.nodes[2].Up()
		for _, err := range p.Scan(t.Context(), strings.Repeat("k", maxKeyLen+1)) {
			wantErr(t, err, ErrInvalidKey)
		}
	})
}

// A node that does not tell is named, and the others are told of.
func TestScanWithNodesInTrouble(t *testing.T) {
	bubbles(t, 3, map[string]func(w *world){
		"down":   func(w *world) { w.nodes[1].Down() },
		"hung":   func(w *world) { w.nodes[1].Hang() },
		"SCAN":   func(w *world) { w.nodes[1].Refuse("SCAN", "NOPERM no scan") },
		"PTTL":   func(w *world) { w.nodes[1].Refuse("PTTL", "NOPERM no pttl") },
		"TIME":   func(w *world) { w.nodes[1].Refuse("TIME", "NOPERM no time") },
		"values": func(w *world) { w.nodes[1].Refuse("GETRANGE", "NOPERM no getrange") },
		"queues": func(w *world) { w.nodes[1].Refuse("ZCARD", "NOPERM no zcard") },
	}, func(t *testing.T, w *world, trouble func(w *world)) {
		p := w.process()
		w.everywhere(p, "k")
		for i := range w.nodes {
			w.exec(i, "ZADD", "lockkit:{0}w:k", 1, "P lockkit:{0}c:x y")
		}
		trouble(w)
		for _, pattern := range []string{"", "*", "k"} {
			if pattern == "k" && w.nodes[1].Calls()["SCAN"] > 0 {
				w.nodes[1].Refuse("PTTL", "NOPERM no pttl") // SCAN is not needed for it
			}
			since := time.Now()
			found, errs := scanAll(t.Context(), p.Locker, pattern)
			if len(errs) != 1 || !errors.Is(errs[0], ErrUnavailable) || !strings.Contains(errs[0].Error(), "node 1 ("+w.nodes[1].Name()+")") {
				t.Errorf("%q: errors %v", pattern, errs)
			}
			if took := time.Since(since); took > p.p.nodeTimeout {
				t.Errorf("%q took %v", pattern, took)
			}
			if len(named(found, 0)) < 2 || len(named(found, 1)) > 0 || !slices.Equal(named(found, 0), named(found, 2)) {
				t.Errorf("%q: found %q, %q, %q", pattern, named(found, 0), named(found, 1), named(found, 2))
			}
		}
		w.nodes[1].Up()
	})
}

// Where the node does not tell how much memory a key takes, all else is told.
func TestScanWithoutMemoryUsage(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		w.holds(p, "k")
		w.nodes[0].Refuse("MEMORY", "NOPERM no memory")
		if found := w.scan(p, ""); len(found) != 1 || found[0].Bytes != 0 || found[0].State.Holder == nil {
			t.Errorf("%+v", found)
		}
	})
}

// The end of ctx, of the Locker and of the loop end a scan.
func TestScanEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.everywhere(p, "a")
		w.everywhere(p, "b")
		times := func(ctx context.Context, each func()) (n int, last error) {
			for _, last = range p.Scan(ctx, "*") {
				if n++; each != nil {
					each()
				}
			}
			return n, last
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		if n, err := times(ctx, func() { cancel(cause) }); n != 3 || !errors.Is(err, cause) {
			t.Errorf("cancelled after the first of node 0: %d, %v", n, err)
		}
		w.nodes[0].Hang()
		ctx, stop := context.WithTimeout(t.Context(), p.p.nodeTimeout/2)
		defer stop()
		if n, err := times(ctx, nil); n != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline while a node hangs: %d, %v", n, err)
		}
		w.nodes[0].Up()
		for range p.Scan(t.Context(), "*") {
			break
		}
		if n, err := times(t.Context(), func() { p.Close(t.Context()) }); n != 3 || !errors.Is(err, ErrClosed) {
			t.Errorf("closed after the first of node 0: %d, %v", n, err)
		}
	})
}

func TestScanOfNothing(t *testing.T) {
	t.Parallel()
	var none context.Context
	for _, l := range []*Locker{nil, {}} {
		for _, err := range l.Scan(none, "") {
			wantErr(t, err, ErrInvalid)
		}
	}
}

// What expires between the steps is not told of, and what lasts is told by the node's clock.
func TestScanByTheNodesClock(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		w.nodes[0].StepClock(time.Hour)
		w.holds(p, "k")
		p.cut()
		if f := w.scan(w.process(), "k"); len(f) != 1 || f[0].State.Holder == nil || f[0].State.Skew != time.Hour {
			t.Errorf("%+v", f)
		}
		time.Sleep(11 * time.Second)
		if f := w.scan(w.process(), "k"); len(f) != 1 || f[0].State.Holder != nil {
			t.Errorf("after its lease: %+v", f)
		}
		w.exec(0, "PEXPIRE", "lockkit:{0}r:k", 1000)
		gone := false
		w.nodes[0].OnRequest(func(args []string) testutil.Action {
			if args[0] == "TIME" && !gone {
				gone = true
				w.exec(0, "DEL", "lockkit:{0}r:k")
			}
			return testutil.Action{}
		})
		if f := w.scan(w.process(), "*"); len(f) != 0 || !gone {
			t.Errorf("of a key that is gone: %+v", f)
		}
	})
}

// Many keys are read in steps of a bounded size, all of them are found, and results are not read.
func TestScanInSteps(t *testing.T) {
	r := onRedis(t, 1)
	p := r.process(sturdy, WithKeyPrefix("many[1]:"))
	const keys = 3000
	big := testutil.Resource{Counter: 7, Record: &testutil.ResourceRecord{Ballot: 7, Kept: time.Now().Add(time.Hour).UnixMilli(), Origin: 7, Result: strings.Repeat("x", maxResult)}}
	admin := r.servers[0].Client()
	_, err := admin.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range keys {
			pipe.Set(t.Context(), fmt.Sprintf("many[1]:{0}r:key:%d", i), testutil.Resource{Counter: int64(i + 1)}.String(), time.Hour)
			pipe.Set(t.Context(), fmt.Sprintf("others:%d", i), "x", 0)
		}
		pipe.Set(t.Context(), "many[1]:{0}r:big", big.String(), time.Hour)
		return nil
	})
	must0(r, err)
	must0(r, admin.ConfigResetStat(t.Context()).Err())
	seen := map[string]bool{}
	for f, err := range p.Scan(t.Context(), "*") {
		must0(r, err)
		seen[f.Key] = true
		if f.Bytes <= 0 || f.TTL <= 0 || f.Kind != FoundLock || f.Key != "big" && f.State.Verdict != VerdictGone {
			t.Fatalf("%+v", f)
		}
		if f.Key == "big" && (f.State.Record == nil || f.State.Record.Token != 7) {
			t.Errorf("%+v", f.State)
		}
	}
	if len(seen) != keys+1 {
		t.Errorf("found %d keys", len(seen))
	}
	stats := admin.Info(t.Context(), "commandstats").Val()
	calls := func(cmd string) (n int) {
		_, after, _ := strings.Cut(stats, "cmdstat_"+cmd+":calls=")
		fmt.Sscan(strings.SplitN(after, ",", 2)[0], &n)
		return n
	}
	if n := calls("scan"); n < 2*keys/(2*scanStep) || n > 3*keys/scanStep {
		t.Errorf("%d times SCAN", n)
	}
	if n := calls("time"); n < keys/scanStep || n > 3*keys/scanStep {
		t.Errorf("%d steps of reading", n)
	}
	if n := calls("get"); n > 0 {
		t.Errorf("%d times GET", n)
	}
}

// Every master of a Cluster is scanned.
func TestScanInACluster(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 3, 5*time.Second)
	l := must(New([]redis.UniversalClient{c.Client()}, unhurried, quietly))
	defer l.Close(over())
	var names []string
	for i := range 20 {
		key := fmt.Sprintf("order:%d", i)
		if _, err := l.TryAcquire(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		names = append(names, "lock "+l.e.keys.resource(key))
	}
	odd := "}r:order:1"
	if _, err := l.TryAcquire(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	other := l.e.keys.tags[(l.e.keys.bucket("order:7")+1)%clusterBuckets] + "r:order:7" // where nobody looks for it
	if err := c.Client().Set(t.Context(), other, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	misplaced, _ := scanAll(t.Context(), l, "order:*")
	for _, f := range misplaced {
		if f.RedisKey == other && f.Kind != FoundForeign {
			t.Errorf("%+v", f)
		}
	}
	if len(misplaced) != len(names)+1 {
		t.Errorf("found %d", len(misplaced))
	}
	if err := c.Client().Del(t.Context(), other).Err(); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string][]string{
		"order:*": names, "order:7": {"lock " + l.e.keys.resource("order:7")}, "order:[1]": {"lock " + l.e.keys.resource("order:1")},
		"*order:1": {"lock " + l.e.keys.resource("order:1"), "lock " + l.e.keys.resource(odd)},
		"":         append(slices.Clone(names), "lock "+l.e.keys.resource(odd)),
	} {
		found, errs := scanAll(t.Context(), l, pattern)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		wantNames(t, named(found, 0), want...)
		for _, f := range found {
			if f.State.Holder == nil {
				t.Errorf("%+v", f)
			}
		}
	}
}
