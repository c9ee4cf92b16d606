package wire

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

var leanStates = flag.Int("lean.states", 1000, "how many states TestPlainIsComplete tries on each kind of node")

// The plain code replies and stores the same as the complete code, for random requests on random states, alone and in
// batches. Both run at the same time of a stopped clock.
func TestPlainIsComplete(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		race.SkipSweep(t)
		plainIsComplete(t, testutil.NewNodes(t, 1)[0].Client())
	})
	t.Run("Redis", func(t *testing.T) {
		race.SkipSweep(t)
		plainIsComplete(t, testutil.NewServers(t, 1)[0].Client())
	})
}

func plainIsComplete(t *testing.T, client redis.UniversalClient) {
	d := &differential{T: t, c: client, us: time.Now().UnixMicro(), plain: map[string]int{}}
	_, line, _ := strings.Cut(client.Info(t.Context(), "replication").Val(), "master_replid:")
	d.history, _, _ = strings.Cut(line, "\r")
	for seed := range uint64(*leanStates) {
		d.try(seed)
		if t.Failed() {
			return
		}
	}
	t.Logf("plain: %v of %d commands", d.plain, *leanStates)
	for _, kind := range []string{"acquire", "guarded acquire", "renew", "guarded renew", "release", "batch", "guarded batch"} {
		if d.plain[kind] < *leanStates/500 {
			t.Errorf("%d were plain: %s", d.plain[kind], kind)
		}
	}
}

type differential struct {
	*testing.T
	c       redis.UniversalClient
	us      int64 // the time of the stopped clock
	history string
	r       *rand.Rand
	easy    bool           // states and requests mostly fit together
	spiced  bool           // except for a detail or two
	focus   int            // the most frequent kind of request
	plain   map[string]int // number of commands that were answered by the clock alone, by kind
}

// A side is one of the two runs. Each has its own prefix.
type side struct {
	k     *Keyspace
	locks map[string]*Lock
	names []string // of all Redis keys that may exist
	reply any
	err   error
}

// one returns one of the values.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (d *differential) rarely(n int) bool { return d.r.IntN(n) == 0 }

// odd reports true once in n times; less often, or never, if d is easy.
func (d *differential) odd(n int) bool { return d.rarely(n) && (!d.easy || d.spiced && d.rarely(3)) }

func (d *differential) try(seed uint64) {
	d.r = rand.New(rand.NewPCG(seed, 0))
	d.easy, d.spiced, d.focus = !d.rarely(4), d.rarely(2), d.r.IntN(5)
	guarded := d.rarely(2)
	window, maxTTL, lag := one(d.r, 0, 500*time.Millisecond), one(d.r, 10*time.Second, 10*time.Second, 20*time.Second, 23*time.Hour), one(d.r, 0, 0, 2*time.Second)
	if d.easy {
		maxTTL = 10 * time.Second
	}
	h := NewPreamble(window, maxTTL, lag)
	wall := time.UnixMicro(d.us + one(d.r, int64(0), 1, -499_999, 500_000, 500_001, -500_001))
	if !d.odd(2) {
		wall = time.UnixMicro(d.us - 300)
	}

	memory, record := d.guard(maxTTL, lag)
	values := map[string]string{"k": d.value("attempt-1"), "j": d.value("attempt-2"), "i": d.value("attempt-3")}
	tombs := map[string]string{}
	for _, id := range attempts {
		if d.odd(12) {
			tombs[id] = one(d.r, "1", "2", "3", "4")
		}
	}

	n := 1
	if d.rarely(2) {
		n = 2 + d.r.IntN(6)
	}
	if d.easy {
		n = min(n, 3)
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = d.r.Uint64()
	}

	var sides [2]*side
	var requests [2][]Request
	for i, prefix := range []string{"A", "B"} {
		s := &side{k: NewKeyspace(prefix, 1, guarded), locks: map[string]*Lock{}}
		sides[i] = s
		s.put(d, values, tombs, record)
		for j, of := range seeds {
			d.r = rand.New(rand.NewPCG(of, 1))
			requests[i] = append(requests[i], d.request(s, j, maxTTL))
		}
		call := h.Encode(n, func(j int) Request { return requests[i][j] }, memory, wall)
		source := call.source
		if i == 1 {
			source = strings.Replace(runScript.source, "local us, tried\n", "local us, tried = nil, true\n", 1)
		}
		args := append([]any{"eval", stoppedClock(d.us) + source}, call.args[2:]...)
		s.reply, s.err = d.c.Do(context.Background(), args...).Result()
		if i == 0 {
			d.note(guarded, requests[0], s.reply)
		}
	}
	d.compare(seed, sides, requests[0], memory)
}

// note counts the commands that were answered by the clock alone.
func (d *differential) note(guarded bool, requests []Request, reply any) {
	if _, plain := reply.(int64); !plain {
		return
	}
	kind := map[Op]string{OpAcquire: "acquire", OpRenew: "renew", OpRelease: "release"}[requests[0].op]
	if len(requests) > 1 {
		kind = "batch"
	}
	if guarded && kind != "release" {
		kind = "guarded " + kind
	}
	d.plain[kind]++
}

// stoppedClock returns Lua code that stops the server's clock.
func stoppedClock(us int64) string {
	return fmt.Sprintf(`local real = redis
local function stopped(call) return function(c, ...) if c == 'TIME' then return {'%d', '%d'} end return call(c, ...) end end
local redis = {call = stopped(real.call), pcall = stopped(real.pcall)}
`, us/1e6, us%1e6)
}

var attempts = []string{"attempt-1", "attempt-2", "attempt-3", "x", "y", "z"} // the first three own the keys if d is easy

// guard returns the memory that the client assumes, and the guard record, or "" for none.
func (d *differential) guard(maxTTL, lag time.Duration) (memory, record string) {
	now := d.us / 1000
	since := now - (maxTTL + lag).Milliseconds() - one(d.r, int64(0), 0, 1, -1, 1000, 100_000)
	memory = d.history + "." + strconv.FormatInt(since, 10) + one(d.r, "", "", "!")
	if d.odd(6) { // a history that is not the server's
		memory = strings.Repeat("ab", 20) + "." + strconv.FormatInt(since, 10)
	}
	record = memory + " " + strconv.FormatInt(maxTTL.Milliseconds(), 10)
	if d.odd(4) {
		record = one(d.r, "", memory+" 5", memory+" 90000000", record+" claim", memory+"! 10000", record+">5000@7", record+">90000000@"+strconv.FormatInt(d.us, 10), record+">5000@7 claim", strings.Repeat("ab", 20)+".5 10000", "x", d.history+". 10000")
	}
	if d.odd(6) {
		memory = one(d.r, NoMemory, d.history+".17", strings.Repeat("ab", 20)+".5")
	}
	return memory, record
}

// value returns the stored value of a key: "" for none, "hash" for a value of another type. If d is easy, owner owns
// it.
func (d *differential) value(owner string) string {
	now := d.us / 1000
	v := testutil.Resource{
		Expiry:  one(d.r, 0, 0, now-1, now, now+1, now+5000, now+10_000, now+10_001, now-5000),
		Counter: d.token(), Before: one(d.r, -1, 0, d.us-1), Owner: one(d.r, append(attempts, "", CooldownPrefix, CooldownPrefix+"attempt-1")...),
	}
	if d.easy {
		v.Owner, v.Counter, v.Expiry = owner, d.us-one(d.r, int64(300), 400, 5000), now+one(d.r, int64(1), 5000, 9999)
		if d.focus%4 == 0 {
			v.Expiry, v.Counter = one(d.r, 0, now-1), d.us-one(d.r, int64(301), 400, 5000)
		}
	}
	if d.odd(8) {
		v.Expiry = 0
	}
	if d.odd(8) {
		v.Counter = 0
	}
	if d.rarely(3) && v.Expiry > 0 && !(d.easy && d.focus%4 == 0) {
		v.Metadata = Holder{Note: "note", Hint: "hint"}.Carried()
	}
	// The value has another owner. Its name begins with that owner's name, or the note is that name.
	if d.odd(8) {
		v.Metadata, v.Owner = Holder{Note: owner}.Carried(), one(d.r, attempts[0], attempts[1], owner+"0")
	}
	if d.odd(8) {
		v.Next, v.TurnUntil = one(d.r, attempts...), now+one(d.r, int64(-1), 0, 1000)
		// This name ends where the length of the carried texts would stand, with the same byte.
		if v.Next == attempts[0] && d.rarely(2) {
			v.Metadata = Holder{Note: strings.Repeat("n", int('1')-len(v.Next)-3)}.Carried()
		}
	}
	if d.odd(8) {
		v.Record = &testutil.ResourceRecord{Ballot: d.token(), KeptUntil: now + one(d.r, int64(-1), 0, 1, 100_000), Origin: d.token(), Result: one(d.r, "", "done")}
	}
	if d.odd(10) {
		v.MayHaveWaiter, v.Ended = true, one(d.r, 0, now-20, now-1000)
	}

	text := v.String()
	if d.odd(10) {
		return one(d.r, "hash", "text", text[:len(text)/2], text+"x", "\x04", "\x02"+text[1:], "\x04"+text[1:25]+"\xff"+strings.Repeat("y", d.r.IntN(60)), "\x01"+text[1:])
	}
	if d.odd(5) || d.easy && d.focus%4 == 0 && d.rarely(3) {
		return ""
	}
	return text
}

// token returns a token near the clock.
func (d *differential) token() int64 {
	return d.us + one(d.r, int64(-300), -300, -301, -299, -1_000_000_000, -2_499_999, -2_500_000, -2_500_001, 2_500_000, 2_500_001, 1_000_000, 60_000_000_000)
}

// request returns the i-th request of a command.
func (d *differential) request(s *side, i int, maxTTL time.Duration) Request {
	key, id, focus := one(d.r, "k", "k", "k", "j", "i"), one(d.r, attempts...), d.focus
	if d.easy {
		key, id = []string{"k", "j", "i"}[i], attempts[i]
		if d.focus%4 == 0 {
			id = attempts[3+i]
		}
	}
	l := s.k.LockOf(key, id)
	lease := MillisOf(one(d.r, min(10*time.Second, maxTTL), time.Second, maxTTL))
	carried := one(d.r, "", Holder{Note: "note"}.Carried(), Holder{Note: strings.Repeat("n", 128), Name: strings.Repeat("m", 60), Hint: strings.Repeat("h", 64)}.Carried())
	waiter := s.k.LockOf(key, "another")
	if d.odd(5) {
		focus = d.r.IntN(4)
	}

	switch focus {
	case 0, 4:
		a := Acquire{Settle: d.odd(15), ProposedToken: StampOf(time.UnixMicro(one(d.r, d.token(), d.us+2_500_001, d.us-2_500_001))), Carried: carried}
		if !d.odd(3) {
			a.ProposedToken = StampOf(time.UnixMicro(d.us - 300))
		}
		if d.odd(8) {
			a.Channel = s.k.Channel(0, "me")
			if d.rarely(2) {
				a.Waiter = Waiter{Name: waiter.id, Ticket: StampOf(time.UnixMicro(d.us - 5000))}
			}
		}
		return l.Acquire(lease, a)
	case 1:
		r := Renew{Token: uint64(d.token()), Confirmed: nodeMillis(d.us/1000 + one(d.r, int64(0), 5000, 20_000)), Turn: MillisOf(one(d.r, 0, time.Second)), Carried: carried}
		if d.easy {
			r.Token = uint64(d.us - 300)
			if d.odd(4) {
				r.Token = uint64(one(d.r, d.token(), d.us+(30*time.Hour).Microseconds()))
			}
		}
		if d.odd(8) {
			r.Granted, r.Memory = uint64(d.token()), one(d.r, NoMemory, d.history+".17")
		}
		return l.Renew(lease, 1, func(int) Renew { return r })(0)
	case 2:
		r := Release{TombstoneLife: MillisOf(3 * time.Second), Arrived: true, DropBelow: one(d.r, 0, uint64(d.token())), Channel: s.k.Channel(0, "me")}
		if d.odd(3) {
			r.Arrived, r.Repeated, r.Cooldown, r.RestoreCounter = d.rarely(2), d.rarely(2), one(d.r, 0, time.Second), d.rarely(2)
			if d.rarely(2) {
				r.Waiter = waiter.Waiter()
				r.Waiter.Ticket = one(d.r, Stamp{}, StampOf(time.UnixMicro(d.us-4000)))
			}
		}
		return l.Release(r)
	}
	c := Complete{Ballot: uint64(d.token()), Memory: one(d.r, NoMemory, d.history+".17"), Retention: time.Hour, Token: uint64(d.token()), Result: []byte(one(d.r, "", "done")),
		TombstoneLife: MillisOf(3 * time.Second), Decided: d.rarely(4), Channel: s.k.Channel(0, "me")}
	return l.Complete(1, func(int) Complete { return c })(0)
}

// put replaces the contents of a node.
func (s *side) put(d *differential, values, tombs map[string]string, record string) {
	ctx := context.Background()
	_, err := d.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		set := func(name, value string, life time.Duration) {
			s.names = append(s.names, name)
			p.Del(ctx, name)
			switch value {
			case "":
			case "hash":
				p.HSet(ctx, name, "a", "hash")
			default:
				p.Set(ctx, name, value, life)
			}
		}
		for _, key := range []string{"k", "j", "i"} {
			set(s.k.Resource(key), values[key], 7*time.Hour)
			s.names = append(s.names, s.k.Waiters(key))
			p.Del(ctx, s.k.Waiters(key))
			if v := values[key]; len(v) > 0 && v[0] == 3 {
				p.ZAdd(ctx, s.k.Waiters(key), redis.Z{Score: 1e15, Member: s.k.Channel(0, "me").how + " first"}, redis.Z{Score: 1e15 + 1, Member: "second"})
				p.PExpire(ctx, s.k.Waiters(key), time.Hour)
			}
		}
		for _, id := range attempts {
			l := s.k.LockOf("k", id)
			set(l.tombstone.(string), tombs[id], 5*time.Minute)
		}
		set(s.k.Guard(0), record, 0)
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
}

// dump returns the values that a node stores, and their remaining lives. A busy machine may shorten the lives.
func (s *side) dump(d *differential) (all []string, lives []time.Duration) {
	ctx := context.Background()
	cmds, err := d.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range s.names {
			p.Type(ctx, name)
			if strings.Contains(name, "}w:") {
				p.ZRangeWithScores(ctx, name, 0, -1)
			} else {
				p.Get(ctx, name)
			}
			p.PTTL(ctx, name)
		}
		return nil
	})
	if cmds == nil {
		d.Fatal(err)
	}
	for i, name := range s.names {
		kind, value := cmds[3*i].(*redis.StatusCmd).Val(), ""
		switch v := cmds[3*i+1].(type) {
		case *redis.StringCmd:
			value = v.Val()
		case *redis.ZSliceCmd:
			value = fmt.Sprint(v.Val())
		}
		all = append(all, fmt.Sprintf("%s %s %q", s.neutral(name), kind, s.neutral(value)))
		lives = append(lives, cmds[3*i+2].(*redis.DurationCmd).Val())
	}
	return all, lives
}

// neutral returns text without the prefix of the side.
func (s *side) neutral(text string) string {
	return strings.ReplaceAll(text, strings.TrimSuffix(s.k.Guard(0), "g"), "{0}")
}

// compare fails the test unless both sides have equal answers and equal contents.
func (d *differential) compare(seed uint64, sides [2]*side, requests []Request, memory string) {
	if a, b := fmt.Sprint(sides[0].err), fmt.Sprint(sides[1].err); a != b {
		d.Fatalf("seed %d: %v, the complete code: %v", seed, a, b)
	}
	if sides[0].err == nil {
		var answers [2]Answers
		for i, s := range sides {
			call := Call{memory: memory}
			if s.k.guards[0] == nil {
				call.memory = NoMemory
			}
			var err error
			if answers[i], err = call.Answers(s.reply); err != nil {
				d.Fatalf("seed %d: %v: %v", seed, s.reply, err)
			}
		}
		for i, r := range requests {
			v, err := answers[0].Next(r)
			w, errW := answers[1].Next(r)
			if r.op == OpRelease && err == nil && errW == nil {
				v.Clock, w.Clock = 0, 0
			}
			if !reflect.DeepEqual(v, w) || fmt.Sprint(err) != fmt.Sprint(errW) {
				d.Errorf("seed %d: request %d, %v %c:\n%+v %v, the complete code:\n%+v %v", seed, i, r.op, r.kind, v, err, w, errW)
			}
		}
	}

	got, lives := sides[0].dump(d)
	want, wantLives := sides[1].dump(d)
	for i := range got {
		if got[i] != want[i] || (lives[i]-wantLives[i]).Abs() > 5*time.Second {
			d.Errorf("seed %d: stored\n%s for %v, by the complete code\n%s for %v", seed, got[i], lives[i], want[i], wantLives[i])
		}
	}
}
