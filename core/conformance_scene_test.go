package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// The language of the conformance table. A case is a list of lines about one key on one node:
//
//	a acquire recover wall=U-5s   -> verdict field=expr …   attempt a sends a script; the vote must be this one
//	a acquire carry=text wait ticket=U-1s for=b -> …   and brings that along; its call waits, since then, as that of b
//	= e=expr i=a f=expr p=expr c=a:text r=a u=expr ballot=… kept=… origin=… result=… ttl=expr
//	                                                                 the resource is exactly this ("none": no key);
//	                                                                 with an owner, p only where it is named
//	=g h=live s=expr m=expr v=1                                      the guard record is exactly this
//	=w a b                                 exactly these attempts' calls wait, in this order
//	=x a=expr b=expr                       exactly these attempts have a tombstone, which lives this much longer
//	! set e=… | noqueue | guard h=… v=1 | flush | replica | promote | sleep d      what happens to the node
//
// A field that is not named must be zero, but that a vote's memory must be the node's. An expr is a sum of numbers, durations (in ms) and names: T, U = the
// node's clock when the case began (ms, µs); now, us = when the last script ran; wall = the client's clock in
// it (µs); a, b = the token granted to that attempt. Results are names of conformanceResults.
type scene struct {
	t       *testing.T
	l       *Locker
	client  redis.UniversalClient
	replica func(on bool) // REPLICAOF, or a switch
	way     delivery
	leases  map[string]*Lease
	names   map[string]span
	count   func() map[string]int // of the commands the node ran; may be nil
	calls   string                // of the last script, if counted
}

// A delivery is how requests reach the node, which must make no difference.
type delivery int

const (
	alone delivery = iota
	twice
	inBatch // between others
)

func (d delivery) String() string { return [...]string{"alone", "twice", "in a batch"}[d] }

// A span is a number known to lie in a range: where a reply does not tell the node's time.
type span struct{ lo, hi int64 }

var conformanceResults = map[string]string{
	"text":   "done: 42",
	"other":  "another result",
	"binary": " \x00\xff\xfe a b\n\r\n 1 2 3 \x00 ",
	"space":  " ",
	"digits": "12 34 56 78",
	"huge":   strings.Repeat("\x00x \n\xc3", 64<<10/5) + "!",
}

const wrongType = "of another type"

const conformanceKey = "a key {with} braces\n"

// open sets the stage: a Locker on the node alone.
func (s *scene) open(t *testing.T, prefix string, opts []Option) {
	var err error
	s.l, err = newLocker([]redis.UniversalClient{s.client}, append([]Option{WithKeyPrefix(prefix)}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.l.Close(context.Background()) })
	s.t, s.leases = t, map[string]*Lease{}
	if s.way == inBatch {
		if err := s.client.HSet(t.Context(), s.l.e.keys.Resource(wrongType), "a", "hash").Err(); err != nil {
			t.Fatal(err)
		}
	}
	us := s.time()
	s.names = map[string]span{"U": {us, us}, "T": {us / 1000, us / 1000}}
	s.names["now"], s.names["us"] = s.names["T"], s.names["U"]
}

func (s *scene) play(lines string) {
	s.t.Helper()
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		head, rest, _ := strings.Cut(line, " ")
		switch head {
		case "":
		case "=":
			s.checkResource(line, fieldsOf(rest))
		case "=g":
			s.checkGuard(line, fieldsOf(rest))
		case "=w":
			s.checkQueue(line, strings.Fields(rest))
		case "=x":
			s.checkTombstones(line, fieldsOf(rest))
		case "!":
			s.happen(line, rest)
		default:
			s.step(line, head, rest)
		}
	}
}

// fieldsOf reads "flag name=value …".
func fieldsOf(text string) map[string]string {
	m := map[string]string{}
	for f := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(f, "=")
		m[name] = value
	}
	return m
}

var exprTerm = regexp.MustCompile(`([+-]?)([^+-]+)`)

func (s *scene) eval(expr string) (sum span) {
	s.t.Helper()
	for _, m := range exprTerm.FindAllStringSubmatch(expr, -1) {
		v, known := s.names[m[2]]
		if n, err := strconv.ParseInt(m[2], 10, 64); err == nil {
			v = span{n, n}
		} else if d, err := time.ParseDuration(m[2]); err == nil {
			v = span{d.Milliseconds(), d.Milliseconds()}
		} else if !known {
			s.t.Fatalf("%q: what is %q?", expr, m[2])
		}
		if m[1] == "-" {
			v = span{-v.hi, -v.lo}
		}
		sum = span{sum.lo + v.lo, sum.hi + v.hi}
	}
	return sum
}

func (s *scene) number(f map[string]string, name string) int64 { return s.eval(f[name]).lo }

// lease is the attempt of that name, made as Acquire makes it.
func (s *scene) lease(name string) *Lease {
	if s.leases[name] == nil {
		s.leases[name] = s.l.newLease(context.Background(), conformanceKey)
	}
	return s.leases[name]
}

// time is the node's clock, in µs.
func (s *scene) time() int64 { return must(s.client.Time(context.Background()).Result()).UnixMicro() }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// request builds what production code sends.
func (s *scene) request(lease *Lease, who, verb string, f map[string]string) (*script, []any) {
	_, flag := f["recover"]
	_, decided := f["decided"]
	memory := f["memory"] // of the grant
	switch since, ok := strings.CutPrefix(memory, "T"); {
	case memory == "":
		memory = s.memory()
	case ok: // of the same history, and begun then
		memory = s.history()[:8] + "." + fmt.Sprint(s.eval("T"+since).lo)
	}
	switch verb {
	case "acquire":
		lease.carries = carriage{hint: f["carry"]}.packed()
		_, lease.waits = f["wait"]
		if ticket, name := f["ticket"], cmp.Or(f["for"], who); ticket != "" {
			lease.wait = newWait(s.lease(name).id, s.number(f, "ticket"), 1)
		}
		return acquireScript, lease.acquiring(flag).args
	case "renew":
		return renewScript, append(lease.args(renewScript, 5), uint64(s.number(f, "token")), s.number(f, "confirmed"),
			uint64(s.number(f, "wb")), memory, s.l.p.turnMs, carriage{hint: f["carry"]}.packed())
	case "release":
		_, undo := f["undo"]
		_, lease.queued = f["waited"]
		_, lease.quits = f["quits"]
		lease.nodes[0].unanswered = 1
		if _, all := f["answered"]; all {
			lease.nodes[0].unanswered = 0
		}
		lease.completing = !undo
		lease.token, lease.reached = uint64(s.number(f, "drop")), map[bool]nodeSet{true: 1}[f["drop"] != ""]
		if _, goesOn := f["waits"]; lease.wait != nil {
			lease.wait.over = !goesOn
		}
		return releaseScript, lease.releasing(time.Duration(s.number(f, "stay")) * time.Millisecond).args
	case "complete":
		_, lease.queued = f["waited"]
		lease.reached, lease.nodes[0].memory = 1, memory
		rec := &nodeRecord{rest: s.l.p.retention}
		rec.Token, rec.Result = uint64(s.number(f, "origin")), []byte(conformanceResults[f["result"]])
		r := lease.offering(rec, uint64(s.number(f, "ballot")), decided)
		return completeScript, append(r.args, r.tail(0)...)
	case "revoke":
		return revokeScript, s.l.revoking(conformanceKey, lease.id.(string))
	case "forget":
		return forgetScript, s.l.forgetting(conformanceKey, uint64(s.number(f, "token")))
	case "provision":
		claim, ok := f["claim"]
		if !ok {
			claim = noMemory
		}
		return provisionScript, append(provisionScript.args(6, s.l.e.guards[0]), "fresh", unstamped, s.l.p.window.Milliseconds(), s.l.p.maxTTL.Milliseconds(), s.l.p.lag.Milliseconds(), claim)
	}
	s.t.Fatalf("no script %q", verb)
	return nil, nil
}

// withoutHistory hides the replication history, as servers do that are not quite Redis.
const withoutHistory = `local real = redis
local redis = {call = function(c, ...) if c == 'INFO' then return 'role:master' end return real.call(c, ...) end}
`

// timeless is what looks at no clock of the client's, and tells none of the node's.
var timeless = map[string]bool{"release": true, "revoke": true, "forget": true}

func (s *scene) step(line, who, rest string) {
	s.t.Helper()
	order, expect, _ := strings.Cut(rest, "->")
	verb, options, _ := strings.Cut(strings.TrimSpace(order), " ")
	f := fieldsOf(options)
	code, args := s.request(s.lease(who), who, verb, f)
	if _, ok := f["nohistory"]; ok {
		code = newScript(code.op, code.replies, withoutHistory, code.source)
		args[1] = code.sha
	}
	_, given := f["wall"]
	var v vote
	var before, after int64
	// Where the machine pauses between the stamp and the request, the node refuses it, and nothing has happened.
	for refused := true; refused; {
		stamp := time.Now()
		if !given {
			f["wall"] = fmt.Sprint(stamp.UnixMicro())
		}
		if !timeless[verb] {
			args[wallArg(args)] = s.number(f, "wall")
		}
		if verb == "acquire" {
			args[proposalArg(args)] = s.number(f, "wall")
		}
		before = s.time()
		v = s.counted(code, args)
		after = s.time()
		refused = v.verdict == VerdictClockSkewed && !given && time.Since(stamp) > s.l.p.window
	}
	if s.way == twice {
		s.send(code, args)
	}
	s.names["us"], s.names["now"] = span{before, after}, span{before / 1000, after / 1000}
	switch clock := int64(v.clock); {
	case clock != 0 && (clock < before/1000*1000 || clock > after):
		s.t.Errorf("%s\n\tclock %d, want %d to %d", line, clock, before, after)
	case clock != 0:
		ms := clock / 1000
		s.names["now"] = span{ms, ms}
		s.names["us"] = span{max(before, clock), min(after, ms*1000+999)}
	case !timeless[verb] && verb != "provision":
		s.t.Errorf("%s\n\tthe reply does not tell the node's clock: %+v", line, v)
	}
	s.names["wall"] = s.eval(f["wall"])
	s.checkVote(line, fieldsOf(expect), v)
	if v.verdict == VerdictGranted && v.token != 0 {
		s.names[who] = span{int64(v.token), int64(v.token)}
	}
}

func (s *scene) counted(code *script, args []any) vote {
	if s.count == nil {
		return s.send(code, args)
	}
	before := s.count()
	defer func() { s.calls = callsBetween(before, s.count()) }()
	return s.send(code, args)
}

func (s *scene) send(code *script, args []any) vote {
	if s.way == inBatch && code.word != nil && code.isOriginal() {
		return s.sendBetween(code, args)
	}
	reply, err := code.run(context.Background(), s.client, args)
	if err != nil {
		return failed(err)
	}
	return code.parse(reply)
}

// sendBetween sends a request between one that fails, unless the key of another type was flushed, and one for
// which the node does what it likes.
func (s *scene) sendBetween(code *script, args []any) vote {
	s.t.Helper()
	wall := time.Now()
	if code != releaseScript {
		wall = time.UnixMicro(args[wallArg(args)].(int64))
	}
	other := func(key string) *Lease { return s.l.newLease(context.Background(), key) }
	batch := []request{
		{r: other(wrongType).releasing(0)},
		{r: &round{e: &s.l.e.ensemble, p: &s.l.p, script: code, args: args}},
		{r: other("of nobody").offering(&nodeRecord{}, 1, false)},
	}
	replies, err := batchScript.runBatch(context.Background(), s.client, together(0, batch, wall))
	switch {
	case err != nil:
		return failed(err)
	case len(replies) != 3 || !strings.HasPrefix(replies[0], "-WRONGTYPE ") && replies[0] != "GONE" || replies[2][0] == '-':
		s.t.Fatalf("the batch answers %q", replies)
	}
	return code.parseInBatch(replies[1])
}

// isOriginal reports whether s is what is sent, not made up for a test.
func (s *script) isOriginal() bool { return slices.Contains(allScripts, s) }

// set writes fields of the resource, the others stay.
func (s *scene) set(f map[string]string) error {
	ctx, key := context.Background(), s.l.e.keys.Resource(conformanceKey)
	value, err := s.client.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	r := must(testutil.ParseResource(value))
	for name, to := range map[string]*int64{"e": &r.Expiry, "f": &r.Counter, "p": &r.Before, "u": &r.TurnUntil, "z": &r.Ended} {
		if f[name] != "" {
			*to = s.number(f, name)
		}
	}
	for name, to := range map[string]*string{"i": &r.Owner, "r": &r.Next} {
		switch whose := f[name]; whose {
		case "":
		case keptTaken:
			*to = whose
		case keptTaken + "a":
			*to = keptTaken + s.lease("a").id.(string)
		default:
			*to = s.lease(whose).id.(string)
		}
	}
	if _, text, ok := strings.Cut(f["c"], ":"); ok {
		r.Carried = carriage{hint: text}.packed()
	}
	if _, waited := f["waited"]; waited {
		r.Waited = true
	}
	if f["ballot"] != "" {
		r.Record = &testutil.ResourceRecord{Ballot: s.number(f, "ballot"), Kept: s.number(f, "kept"), Origin: s.number(f, "origin"), Result: conformanceResults[f["result"]]}
	}
	life := time.Duration(redis.KeepTTL)
	if f["ttl"] != "" {
		life = time.Duration(s.number(f, "ttl")) * time.Millisecond
	}
	return s.client.Set(ctx, key, r.String(), life).Err()
}

// happen is what others, or fate, do to the node.
func (s *scene) happen(line, rest string) {
	s.t.Helper()
	ctx := context.Background()
	verb, options, _ := strings.Cut(rest, " ")
	f := fieldsOf(options)
	var err error
	switch verb {
	case "set":
		err = s.set(f)
	case "guard":
		hash := map[string]any{}
		for _, name := range []string{"s", "m", "v"} {
			if f[name] != "" {
				hash[name] = s.number(f, name)
			}
		}
		if h := f["h"]; h != "" {
			hash["h"] = map[string]string{"live": s.history(), "old": strings.Repeat("0123456789", 4)}[h]
		}
		if f["n"] != "" {
			hash["n"] = f["n"]
		}
		err = s.client.HSet(ctx, s.l.e.keys.Guard(0), hash).Err()
	case "noqueue": // but something else under its name
		err = s.client.Set(ctx, s.l.e.keys.Waiters(conformanceKey), "x", 0).Err()
	case "flush":
		err = s.client.FlushAll(ctx).Err()
	case "replica":
		s.replica(true)
	case "promote":
		s.replica(false)
	case "sleep":
		time.Sleep(must(time.ParseDuration(options))) // only frozen cases sleep, in a bubble
	default:
		s.t.Fatalf("%s: what is that?", line)
	}
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
}

func embeddedScene(t *testing.T, c conformanceCase, way delivery) {
	synctest.Test(t, func(t *testing.T) {
		node := testutil.NewNodes(t, 1)[0]
		replica := func(on bool) {
			node.SetReplica(on)
			if !on {
				node.Promote()
			}
		}
		s := &scene{client: node.Client(), replica: replica, way: way}
		s.open(t, "conformance:", c.opts)
		s.play(c.play)
	})
}

func redisScene(t *testing.T, c conformanceCase, way delivery, server *testutil.Server, prefix string) {
	client := server.Client()
	replica := func(on bool) {
		master := "NO ONE"
		if on {
			master = "127.0.0.1 1" // nobody answers there
		}
		host, port, _ := strings.Cut(master, " ")
		if err := client.SlaveOf(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := &scene{client: client, replica: replica, way: way}
	s.open(t, prefix, c.opts)
	s.play(c.play)
}
