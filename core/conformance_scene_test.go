package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// A scene plays one case of the conformance table. A case is a list of lines about one key on one node:
//
//	a acquire recover wall=U-5s   -> verdict field=expr …   attempt a sends a script; the vote must be this one
//	a acquire carry=text wait ticket=U-1s for=b -> …   and brings that text; its call waits, since then, as b's call
//	= e=expr i=a f=expr p=expr c=a:text r=a u=expr ballot=… kept=… origin=… result=… ttl=expr
//	                                                                 the resource is exactly this ("none": no key);
//	                                                                 with an owner, p counts only if it is named
//	=g h=live s=expr m=expr v=1 k=expr                               the guard record is exactly this;
//	                                                                 k: an operator is lowering m to that
//	=n m=expr s=expr                                                 the note beside it ("none": no key)
//	=w a b                                 exactly these attempts' calls wait, in this order
//	=x a=expr:refused b=expr               exactly these attempts have a tombstone; it lives this much longer and,
//	                                       if that is named, has this end of the attempt
//	! set e=… | noqueue | guard h=… v=1 | flush | replica | promote | sleep d      happens to the node
//
// A field that is not named must be zero, except that a vote's memory must be the node's, and that its longest lease
// counts only if it is named. An expr is a sum of numbers, durations (in ms) and names. T and U are the node's clock
// when the case began (ms, µs). now and us are that clock when the last script ran. wall is the client's clock in that
// script (µs). a and b are the tokens granted to these attempts. Results are names of conformanceResults.
type scene struct {
	t         *testing.T
	l         *Locker
	client    redis.UniversalClient
	replica   func(on bool) // REPLICAOF, or a switch
	way       delivery
	nohistory bool // the server hides its replication history
	leases    map[string]*Lease
	names     map[string]span
	count     func() map[string]int // counts the commands that the node ran; may be nil
	calls     string                // commands of the last script, if they are counted
	mark      string                // the mark in the node's last reply to the verb mark
	known     string                // the memory that the client expects the node to have
}

// A delivery is the way in which requests reach the node. It must make no difference.
type delivery int

const (
	alone delivery = iota
	twice
	inBatch // between others
)

func (d delivery) String() string { return [...]string{"alone", "twice", "in a batch"}[d] }

// A span is a range in which a number lies. The node's time is only known as a range if a reply does not contain it.
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

// open makes the Locker of the scene, on its only node.
func (s *scene) open(t *testing.T, prefix string, opts []Option) {
	var err error
	s.l, err = New([]redis.UniversalClient{s.client}, append([]Option{WithKeyPrefix(prefix), inside.AllowUnfit.(Option)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.l.Close(context.Background()) })

	s.t, s.leases = t, map[string]*Lease{}
	if s.way == inBatch {
		succeeds(t, s.client.HSet(t.Context(), s.l.e.Keys.Resource(wrongType), "a", "hash").Err())
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
		case "=n":
			s.checkNote(line, fieldsOf(rest))
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

// fieldsOf parses "flag name=value …".
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

// lease returns the attempt of that name. The first call makes the attempt, as Acquire does.
func (s *scene) lease(name string) *Lease {
	if s.leases[name] == nil {
		s.leases[name] = s.l.newLease(context.Background(), conformanceKey)
	}
	return s.leases[name]
}

// time returns the node's clock in µs.
func (s *scene) time() int64 { return must(s.client.Time(context.Background()).Result()).UnixMicro() }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// request returns the request that production code would send. The wall clock of an acquisition is also its proposed
// token.
func (s *scene) request(lease *Lease, who, verb string, f map[string]string) func(wall time.Time) wire.Request {
	_, flag := f["recover"]
	_, decided := f["decided"]
	memory := f["memory"] // of the node when it granted the lease
	switch since, ok := strings.CutPrefix(memory, "T"); {
	case memory == "":
		memory = s.memory()
	case ok: // the same history, with another beginning
		memory = s.history() + "." + fmt.Sprint(s.eval("T"+since).lo)
	}

	carried := wire.Holder{Hint: f["carry"]}.Carried()
	always := func(q wire.Request) func(time.Time) wire.Request { return func(time.Time) wire.Request { return q } }

	switch verb {
	case "acquire":
		if ticket, name := f["ticket"], cmp.Or(f["for"], who); ticket != "" {
			lease.attempt.waiter = queue.NewWaiter(s.lease(name).attempt.lock.Waiter(), wire.StampOf(time.UnixMicro(s.number(f, "ticket"))), 1)
		}
		ask := wire.Acquire{Settle: flag, Carried: carried}
		if _, waits := f["wait"]; waits || lease.attempt.waiter != nil {
			ask.Channel = s.l.e.Buckets[0].Channel
		}
		if lease.attempt.waiter != nil {
			ask.Waiter = lease.attempt.waiter.Name
		}
		return func(wall time.Time) wire.Request {
			ask.ProposedToken = wire.StampOf(wall)
			return lease.attempt.lock.Acquire(s.l.p.ttlMillis, ask)
		}
	case "renew":
		return always(lease.attempt.lock.Renew(s.l.p.ttlMillis, 1, func(int) wire.Renew {
			return wire.Renew{Token: uint64(s.number(f, "token")), Confirmed: wire.NodeTime(1000 * s.number(f, "confirmed")), Granted: uint64(s.number(f, "wb")), Memory: memory,
				Turn: s.l.p.turnMillis, Carried: carried}
		})(0))
	case "release":
		_, undo := f["undo"]
		lease.attempt.place = placeOf(f, f["drop"] != "")
		_, alone := f["alone"] // nothing but the acquisition was sent
		lease.attempt.nodes[0].unanswered, lease.attempt.nodes[0].sentOther = 1, !alone
		if _, all := f["answered"]; all {
			lease.attempt.nodes[0].unanswered = 0
		}
		lease.attempt.completionSent = false
		switch lease.attempt.token = uint64(s.number(f, "drop")); {
		case f["drop"] != "":
			lease.attempt.exposure = tokenReported
		case undo:
			lease.attempt.exposure = tokenUnseen
		default:
			lease.attempt.exposure = tokenVisible
		}
		if _, goesOn := f["waits"]; lease.attempt.waiter != nil && !goesOn {
			lease.attempt.waiter.End()
		}
		return always(to(lease.attempt.newReleaseRound(time.Duration(s.number(f, "cooldown"))*time.Millisecond), 0))
	case "complete":
		lease.attempt.place = placeOf(f, true)
		lease.attempt.nodes[0].memory = memory
		rec := &wire.Record{Retention: s.l.p.retention, Token: uint64(s.number(f, "origin")), Result: []byte(conformanceResults[f["result"]])}
		return always(to(lease.attempt.newCompleteRound(rec, uint64(s.number(f, "ballot")), decided), 0))
	case "revoke":
		lock := s.l.e.Keys.LockOf(conformanceKey, lease.name())
		return always(lock.Revoke(s.l.e.Head.Load()))
	case "forget":
		return always(s.l.e.Keys.Forget(conformanceKey, uint64(s.number(f, "token"))))
	case "provision":
		claim, ok := f["claim"]
		if !ok {
			claim = wire.NoMemory
		}
		return always(s.l.e.Keys.Provision(0, "fresh", claim))
	case "mark":
		return always(s.l.e.Keys.Mark(0, wire.MillisOf(time.Duration(s.number(f, "to"))*time.Millisecond)))
	case "check":
		return always(s.l.e.Keys.CheckMark(0, s.mark))
	case "lower":
		return always(s.l.e.Keys.Lower(0, wire.MillisOf(time.Duration(s.number(f, "to"))*time.Millisecond), s.mark))
	case "unmark":
		return always(s.l.e.Keys.Unmark(0))
	}
	s.t.Fatalf("no script %q", verb)
	return nil
}

// withoutHistory is Lua code that hides the replication history, as on servers that only resemble Redis.
const withoutHistory = `local real = redis
local function without(call) return function(c, ...) if c == 'INFO' then return 'role:master' end return call(c, ...) end end
local redis = {call = without(real.call), pcall = without(real.pcall)}
`

// timeless has the verbs whose scripts neither check the client's clock nor return the node's.
var timeless = map[string]bool{"release": true, "revoke": true, "forget": true}

func (s *scene) step(line, who, rest string) {
	s.t.Helper()
	order, expect, _ := strings.Cut(rest, "->")
	verb, options, _ := strings.Cut(strings.TrimSpace(order), " ")
	f := fieldsOf(options)
	request := s.request(s.lease(who), who, verb, f)
	_, s.nohistory = f["nohistory"]
	_, given := f["wall"]
	var wall time.Time
	var v quorum.Vote
	var before, after int64

	// If the machine pauses between the stamp and the request, the node refuses the request and nothing has happened.
	for refused := true; refused; {
		stamp := time.Now()
		if !given {
			f["wall"] = fmt.Sprint(stamp.UnixMicro())
		}
		wall = time.UnixMicro(s.number(f, "wall"))
		before = s.time()
		v = s.counted(request(wall), wall)
		after = s.time()
		refused = v.Verdict == wire.ClockSkewed && !given && time.Since(stamp) > s.l.p.Window
	}

	if s.way == twice {
		s.send(request(wall), wall)
	}

	s.names["us"], s.names["now"] = span{before, after}, span{before / 1000, after / 1000}
	switch clock := int64(v.Clock); {
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
	if verb == "mark" {
		s.mark = v.Claim
	}
	if v.Verdict == wire.Granted && v.Token != 0 {
		s.names[who] = span{int64(v.Token), int64(v.Token)}
	}
}

func (s *scene) counted(q wire.Request, wall time.Time) quorum.Vote {
	if s.known = s.memory(); s.count == nil {
		return s.send(q, wall)
	}
	before := s.count()
	defer func() { s.calls = callsBetween(before, s.count()) }()
	return s.send(q, wall)
}

func (s *scene) send(q wire.Request, wall time.Time) quorum.Vote {
	if s.way == inBatch && !q.Op().Alone() && !s.nohistory {
		return s.sendBetween(q, wall)
	}
	before := ""
	if s.nohistory {
		before = withoutHistory
	}
	votes, err := coretest.AskAs(s.client, s.l.e.Head.Load(), s.known, wall, before, q)
	if err != nil {
		return coretest.VoteOf(wire.Reply{}, err)
	}
	return votes[0]
}

// sendBetween sends a request between two others. The first one fails, unless the key of another type was flushed. The
// node may answer the last one in any way except with an error.
func (s *scene) sendBetween(q wire.Request, wall time.Time) quorum.Vote {
	s.t.Helper()
	if q.Op() == wire.OpRelease {
		wall = time.Now()
	}
	other := func(key string) *Lease { return s.l.newLease(context.Background(), key) }
	batch := []wire.Request{to(other(wrongType).attempt.newReleaseRound(0), 0), q, to(other("of nobody").attempt.newCompleteRound(&wire.Record{}, 1, false), 0)}
	votes, err := sendTogether(s.client, s.l, batch, wall)
	switch {
	case err != nil:
		return quorum.NewVote(wire.Failed, err)
	case !redis.HasErrorPrefix(votes[0].Err, "WRONGTYPE") && votes[0].Verdict != wire.Gone || votes[2].Verdict == wire.Failed:
		s.t.Fatalf("the batch answers %+v", votes)
	}
	return votes[1]
}

// sendTogether sends requests as a batch.
func sendTogether(c redis.UniversalClient, l *Locker, batch []wire.Request, wall time.Time) ([]quorum.Vote, error) {
	return coretest.Ask(c, l.e.Head.Load(), l.e.Buckets[0].Memory(0), wall, batch...)
}

// member returns the name of a waiting call in the queue.
func (s *scene) member(name string) string {
	c := s.l.e.Buckets[0].Channel
	how := "P "
	if c.Sharded {
		how = "S "
	}
	return how + c.Name + " " + s.lease(name).name()
}

// tombstone returns the key of an attempt's tombstone.
func (s *scene) tombstone(name string) string {
	return strings.TrimSuffix(s.l.e.Keys.Guard(0), "g") + "x:" + s.lease(name).name()
}

// carriedHint returns the text that a lease stores if it carries only a hint.
func carriedHint(text string) string {
	if text == "" {
		return ""
	}
	return "\x00\x00" + string(rune(len(text))) + text
}

// set writes fields of the resource, and keeps the others.
func (s *scene) set(f map[string]string) error {
	ctx, key := context.Background(), s.l.e.Keys.Resource(conformanceKey)
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
		case wire.CooldownPrefix:
			*to = whose
		case wire.CooldownPrefix + "a":
			*to = wire.CooldownPrefix + s.lease("a").name()
		default:
			*to = s.lease(whose).name()
		}
	}

	if _, text, ok := strings.Cut(f["c"], ":"); ok {
		r.Metadata = carriedHint(text)
	}
	if _, waited := f["waited"]; waited {
		r.MayHaveWaiter = true
	}
	if f["ballot"] != "" {
		r.Record = &testutil.ResourceRecord{Ballot: s.number(f, "ballot"), KeptUntil: s.number(f, "kept"), Origin: s.number(f, "origin"), Result: conformanceResults[f["result"]]}
	}

	life := time.Duration(redis.KeepTTL)
	if f["ttl"] != "" {
		life = time.Duration(s.number(f, "ttl")) * time.Millisecond
	}
	return s.client.Set(ctx, key, r.String(), life).Err()
}

// A guardRecord is the guard record of a node, split into the parts of wire/lua/guard.lua.
type guardRecord struct {
	History, Since, New, Longest, Mark, Claim string
}

var guardText = regexp.MustCompile(`^(\w+)\.(\d*)(!?) (\d+)((?:>\d+@\d+)?) ?(\S*)$`)

func (s *scene) guard() (g guardRecord, ok bool) {
	text := s.client.Get(context.Background(), s.l.e.Keys.Guard(0)).Val()
	if m := guardText.FindStringSubmatch(text); m != nil {
		return guardRecord{m[1], m[2], m[3], m[4], m[5], m[6]}, true
	}
	return guardRecord{}, text != ""
}

// setGuard writes fields of the guard record, and keeps the others.
func (s *scene) setGuard(f map[string]string) error {
	g, _ := s.guard()
	for name, to := range map[string]*string{"s": &g.Since, "m": &g.Longest} {
		if f[name] != "" {
			*to = fmt.Sprint(s.number(f, name))
		}
	}

	if h := f["h"]; h != "" {
		g.History = map[string]string{"live": s.history(), "old": strings.Repeat("0123456789", 4)}[h]
	}
	if f["v"] != "" {
		g.New = "!"
	}
	if f["k"] != "" {
		g.Mark = fmt.Sprintf(">%d@%d", s.number(f, "k"), s.number(f, "at"))
	}

	text := g.History + "." + g.Since + g.New + " " + g.Longest + g.Mark
	if g.Claim = cmp.Or(f["n"], g.Claim); g.Claim != "" {
		text += " " + g.Claim
	}
	return s.client.Set(context.Background(), s.l.e.Keys.Guard(0), text, 0).Err()
}

// happen makes something happen to the node, such as a flush or a promotion.
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
		err = s.setGuard(f)
	case "noqueue": // another type under the key of the queue
		err = s.client.Set(ctx, s.l.e.Keys.Waiters(conformanceKey), "x", 0).Err()
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
			master = "127.0.0.1 1" // no server answers there
		}
		host, port, _ := strings.Cut(master, " ")
		// Otherwise the server itself would refuse the write.
		succeeds(t, client.ConfigSet(t.Context(), "replica-read-only", "no").Err())
		succeeds(t, client.SlaveOf(t.Context(), host, port).Err())
	}
	s := &scene{client: client, replica: replica, way: way}
	s.open(t, prefix, c.opts)
	s.play(c.play)
}

// placeOf returns the place of an attempt in the queues. leased reports whether the attempt became a lease.
func placeOf(f map[string]string, leased bool) place {
	_, waited := f["waited"]
	_, quits := f["quits"]
	switch {
	case waited && (quits || leased):
		return leaving
	case waited:
		return queued
	}
	return unqueued
}
