package wire

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

var (
	modelCalls = flag.Int("model.calls", 1600, "how many random calls TestScriptsDoAsTheModel makes on an embedded node; a quarter as many on Redis")
	modelSeed  = flag.Int64("model.seed", -1, "the only seed that TestScriptsDoAsTheModel tries; -1 is for all")
)

// callsOfTrial is how many calls a seed makes.
const callsOfTrial = 40

// Random calls have the same replies and leave the same store behind on a node and in the model (model_test.go), for
// the plain code of the scripts (even seeds) and for the complete code (odd seeds). Between the calls, time passes, to
// the millisecond of what may end next; nodes are flushed, restarted empty, promoted and restored from snapshots; and
// requests arrive again, late, or never.
func TestScriptsDoAsTheModel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		race.SkipSweep(t)
		scriptsDoAsTheModel(t, *modelCalls, func(play func(*subject)) {
			synctest.Test(t, func(t *testing.T) { play(newEmbeddedSubject(t)) })
		})
	})
	t.Run("Redis", func(t *testing.T) {
		race.SkipSweep(t)
		client := testutil.NewServers(t, 1)[0].Client()
		scriptsDoAsTheModel(t, *modelCalls/4, func(play func(*subject)) { play(newRedisSubject(t, client)) })
	})
}

func scriptsDoAsTheModel(t *testing.T, calls int, onNode func(func(*subject))) {
	reached := map[string]int{}
	bad := 0
	seeds := (calls + callsOfTrial - 1) / callsOfTrial
	for seed := range int64(seeds) {
		if *modelSeed >= 0 && seed != *modelSeed {
			continue
		}

		var failed *trial
		onNode(func(s *subject) {
			trial := newTrial(s, seed, reached)
			if trial.drawAndPlay() != "" {
				failed = trial
			}
		})
		if failed != nil {
			t.Error(shortest(failed, onNode))
			if bad++; bad > 3 {
				break
			}
		}
	}

	t.Logf("reached: %v", reached)
	if *modelSeed < 0 && calls >= 400 {
		for _, what := range mustReachInModel {
			if reached[what] == 0 {
				t.Errorf("never reached: %s", what)
			}
		}
	}
}

// mustReachInModel has the replies without which a run of the test says little.
var mustReachInModel = []string{
	"acquire granted", "acquire held", "acquire done", "acquire reserved", "acquire gone", "acquire quarantined", "acquire clock_skewed",
	"renew granted", "renew healed", "renew passed", "renew gone", "renew quarantined", "renew unconfirmed",
	"release granted", "release gone", "release too_late",
	"complete granted", "complete done", "complete gone", "complete forgotten", "complete unconfirmed",
}

// shortest drops events from the trial for as long as what is left still fails, and describes it.
func shortest(failed *trial, onNode func(func(*subject))) string {
	events := failed.events
	var what string
	fails := func(events []event) bool {
		text := ""
		onNode(func(s *subject) { text = newTrial(s, failed.seed, map[string]int{}).replay(events) })
		if text != "" {
			what = text
		}
		return text != ""
	}
	if !fails(events) {
		return fmt.Sprintf("seed %d: %s\nIt does not happen again when the same is repeated.", failed.seed, failed.failure)
	}

	for size := max(1, len(events)/2); size > 0; size /= 2 {
		for i := len(events) - size; i >= 0; i-- {
			if i+size <= len(events) {
				without := slices.Concat(events[:i], events[i+size:])
				if fails(without) {
					events = without
				}
			}
		}
	}
	for i, e := range events {
		for j := len(e.command.requests) - 1; j >= 0 && len(events[i].command.requests) > 1; j-- {
			fewer := slices.Clone(events)
			fewer[i].command.requests = slices.Delete(slices.Clone(events[i].command.requests), j, j+1)
			if fails(fewer) {
				events = fewer
			}
		}
	}

	fails(events)
	var lines []string
	last := int64(0)
	for _, e := range events {
		lines = append(lines, e.describe(last))
		last = e.µs
	}
	return fmt.Sprintf("seed %d, after %d calls; the shortest part that shows it:\n%s\n%s\nRepeat it: go test -vet=off ./core/internal/wire -run '^TestScriptsDoAsTheModel$/^%s$' -count=1 -model.calls=%d -model.seed=%d",
		failed.seed, len(failed.events), strings.Join(lines, "\n"), what, failed.subject.kind, (failed.seed+1)*callsOfTrial, failed.seed)
}

// A subject is a node that the scripts run on. It is used from one goroutine.
type subject struct {
	kind     string
	run      func(commands ...[]any) []any // each reply, or error
	setTime  func(µs int64, dies map[string]int64)
	promote  func() // to a new replication history
	replica  func(on bool)
	prelude  string // of each script
	takeSent func() []noticeModel

	bonus  int64 // what keys live longer, to outlast the time that the test itself takes; ms
	loaded map[string]string
}

// one runs one command.
func (s *subject) one(args ...any) any { return s.run(args)[0] }

func newEmbeddedSubject(t *testing.T) *subject {
	node := testutil.NewNodes(t, 1)[0]
	s := &subject{kind: "embedded", promote: node.Promote, loaded: map[string]string{}}
	s.run = func(commands ...[]any) []any {
		replies := make([]any, len(commands))
		for i, args := range commands {
			v, err := node.Exec(args...)
			replies[i] = asRedisClient(v)
			if err != nil {
				replies[i] = err
			}
		}
		return replies
	}

	offset := int64(0)
	s.setTime = func(µs int64, _ map[string]int64) {
		ahead := µs - time.Now().UnixMicro() - offset
		if ahead >= 0 && offset != 0 {
			time.Sleep(time.Duration(ahead) * time.Microsecond)
			return
		}
		node.StepClock(time.Duration(ahead) * time.Microsecond)
		offset += ahead
	}
	s.replica = node.SetReplica

	var sent []noticeModel
	node.OnCall(func(_ int, args []string) string {
		if args[0] == "PUBLISH" {
			sent = append(sent, noticeModel{args[1], args[2]})
		}
		return ""
	})
	s.takeSent = func() []noticeModel {
		defer func() { sent = nil }()
		return sent
	}
	return s
}

// asRedisClient returns a reply with the types of go-redis.
func asRedisClient(reply any) any {
	switch v := reply.(type) {
	case int:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = asRedisClient(v[i])
		}
	}
	return reply
}

// On a real server, scripts read the time that the test has set, and leave their messages in a list.
const redisPrelude = `local real = redis
local function told(call)
  return function(c, ...)
    if c == 'TIME' then
      local us = real.call('GET', 'test:clock')
      return {string.sub(us, 1, -7), string.sub(us, -6)}
    end
    if c == 'PUBLISH' then return real.call('RPUSH', 'test:sent', ...) end
    return call(c, ...)
  end
end
local redis = {call = told(real.call), pcall = told(real.pcall)}
`

func newRedisSubject(t *testing.T, client redis.UniversalClient) *subject {
	ctx := context.Background()
	s := &subject{kind: "Redis", prelude: redisPrelude, bonus: 77_777_777, loaded: map[string]string{}}
	s.run = func(commands ...[]any) []any {
		cmds := make([]*redis.Cmd, len(commands))
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, args := range commands {
				cmds[i] = p.Do(ctx, args...)
			}
			return nil
		})
		replies := make([]any, len(commands))
		for i, c := range cmds {
			v, err := c.Result()
			replies[i] = v
			if err != nil && err != redis.Nil {
				replies[i] = err
			}
		}
		return replies
	}

	// The server's own clock runs on. So keys get their remaining lives anew, and a bonus.
	s.setTime = func(µs int64, dies map[string]int64) {
		commands := [][]any{{"set", "test:clock", µs}}
		for name, at := range dies {
			left := (at - µs + 999) / 1000
			if left <= 0 {
				commands = append(commands, []any{"del", name})
			} else {
				commands = append(commands, []any{"pexpire", name, left + s.bonus})
			}
		}
		s.run(commands...)
	}
	s.promote = func() {
		s.run([]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}) // nobody answers there
	}
	s.replica = func(on bool) {
		if on {
			s.run([]any{"config", "set", "replica-read-only", "no"}, []any{"replicaof", "127.0.0.1", "1"})
		} else {
			s.run([]any{"replicaof", "no", "one"})
		}
	}
	s.takeSent = func() (sent []noticeModel) {
		replies := s.run([]any{"lrange", "test:sent", 0, -1}, []any{"del", "test:sent"})
		words, _ := replies[0].([]any)
		for i := 0; i+1 < len(words); i += 2 {
			sent = append(sent, noticeModel{words[i].(string), words[i+1].(string)})
		}
		return sent
	}
	return s
}

// history returns the replication history, as INFO tells it.
func (s *subject) history() string {
	_, line, _ := strings.Cut(fmt.Sprint(s.one("info", "replication")), "master_replid:")
	history, _, _ := strings.Cut(line, "\r")
	return history
}

const withoutHistory = `local shown = redis
local function without(call) return function(c, ...) if c == 'INFO' then return 'role:master' end return call(c, ...) end end
local redis = {call = without(shown.call), pcall = without(shown.pcall)}
`

// eval runs a command with this source of its script.
func (s *subject) eval(source string, args []any) any {
	sha := s.loaded[source]
	if sha == "" {
		sum := sha1.Sum([]byte(source))
		sha = hex.EncodeToString(sum[:])
		s.loaded[source] = sha
	}

	plain := []any{"evalsha", sha}
	for _, a := range args {
		if b, ok := a.(encoding.BinaryMarshaler); ok {
			text, _ := b.MarshalBinary()
			a = text
		}
		plain = append(plain, a)
	}
	reply := s.one(plain...)
	if err, failed := reply.(error); failed && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply = s.one(append([]any{"eval", source}, plain[2:]...)...)
	}
	return reply
}

// An event is what happens at a time: a call, or something to the node.
type event struct {
	µs      int64
	what    string // "call", "flush", "restart", "promote", "snapshot", "restore"
	command commandModel
	replica bool // the node is a replica during the call,
	hidden  bool // or hides its history
}

// A trial is one program of random events, on a subject and in the model.
type trial struct {
	subject  *subject
	seed     int64
	r        *rand.Rand
	complete bool // the scripts' complete code runs, whatever is asked
	reached  map[string]int

	events    []event
	failure   string
	model     nodeModel
	snapshot  nodeModel
	µs        int64
	histories []string // the real ones; the model calls them h0, h1, …

	// What the clients of the trial have in common, and what they know.
	guarded     bool
	window, lag int64
	maxTTLs     []int64
	attempts    map[string]*attemptOfTrial
	names       []string // of attempts, the newest last
	waiters     []waiterOfTrial
}

type attemptOfTrial struct {
	key, memory   string
	token, expiry int64
}

type waiterOfTrial struct {
	key, process string
	waiter       Waiter
}

const trialStart = 1_790_000_000_123_456

func newTrial(s *subject, seed int64, reached map[string]int) *trial {
	t := &trial{
		subject: s, seed: seed, reached: reached, complete: seed%2 == 1, µs: trialStart,
		r: rand.New(rand.NewPCG(uint64(seed), 0)), attempts: map[string]*attemptOfTrial{},
	}
	s.one("flushall")
	s.promote()
	t.histories = []string{s.history()}
	t.model = nodeModel{history: "h0", keys: map[string]keyModel{}}
	t.snapshot = t.model

	t.guarded = t.r.IntN(4) > 0
	t.window = one(t.r, int64(0), 500, 500)
	t.lag = one(t.r, int64(0), 0, 2000, 600_000)
	t.maxTTLs = one(t.r, []int64{3_600_000}, []int64{3_600_000}, []int64{3_600_000, 5_400_000}, []int64{7_200_000, 14_400_000})
	return t
}

// drawAndPlay plays random events until something differs, and returns what.
func (t *trial) drawAndPlay() string {
	for len(t.events) < callsOfTrial && t.failure == "" {
		e := t.draw()
		t.events = append(t.events, e)
		t.failure = t.play(e)
	}
	return t.failure
}

// replay plays these events, and returns what differs.
func (t *trial) replay(events []event) string {
	for _, e := range events {
		if failure := t.play(e); failure != "" {
			return failure
		}
	}
	return ""
}

// play lets an event happen on the subject and in the model, and returns what differs.
func (t *trial) play(e event) string {
	began := time.Now()
	t.µs = e.µs
	t.model = t.model.forget(e.µs)
	t.subject.setTime(e.µs, t.dies())

	switch e.what {
	case "flush":
		t.flush()
	case "restart":
		t.flush()
		t.newHistory()
	case "promote":
		t.newHistory()
	case "snapshot":
		t.snapshot = t.model
	case "restore":
		t.restore()
	case "call":
		return t.call(e, began)
	}
	return t.compareStore(began, t.lives())
}

func (t *trial) flush() {
	t.subject.one("flushall")
	t.subject.setTime(t.µs, nil)
	t.model = nodeModel{history: t.model.history, keys: map[string]keyModel{}}
}

// newHistory gives the node a new replication history.
func (t *trial) newHistory() {
	t.subject.promote()
	t.nameHistory()
}

func (t *trial) nameHistory() {
	t.model.history = fmt.Sprintf("h%d", len(t.histories))
	t.histories = append(t.histories, t.subject.history())
}

// restore brings back what was stored at the time of the snapshot, with a new history.
func (t *trial) restore() {
	t.flush()
	history := t.model.history
	t.model = t.snapshot.forget(t.µs)
	t.model.history = history
	for name, k := range t.model.keys {
		k.diesµ, k.queueDiesµ = t.toMillis(k.diesµ), t.toMillis(k.queueDiesµ)
		for attempt, e := range k.ends {
			k.ends[attempt] = endModel{e.how, t.toMillis(e.diesµ)}
		}
		t.model.keys[name] = k
	}
	t.newHistory()

	var commands [][]any
	for name, e := range t.store() {
		if e.zset != nil {
			for _, w := range e.zset {
				commands = append(commands, []any{"zadd", name, w.ticket, w.member})
			}
		} else {
			commands = append(commands, []any{"set", name, t.real(e.value)})
		}
		if e.diesµ > 0 {
			commands = append(commands, []any{"pexpire", name, (e.diesµ - t.µs) / 1000})
		}
	}
	t.subject.run(commands...)
	t.subject.setTime(t.µs, t.dies())
}

// toMillis returns a time at which a key can be told to end: a whole number of milliseconds from now.
func (t *trial) toMillis(diesµ int64) int64 {
	if diesµ <= t.µs {
		return 0
	}
	return t.µs + (diesµ-t.µs+999)/1000*1000
}

// real returns text with the real names of histories.
func (t *trial) real(text string) string {
	for i := len(t.histories) - 1; i >= 0; i-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("h%d.", i), t.histories[i]+".")
	}
	return text
}

// named returns text with the model's names of histories.
func (t *trial) named(text string) string {
	for i, h := range t.histories {
		text = strings.ReplaceAll(text, h, fmt.Sprintf("h%d", i))
	}
	return text
}

// call lets both execute a command.
func (t *trial) call(e event, began time.Time) string {
	before := t.dies()
	t.model.replica, t.model.hidden = e.replica, e.hidden
	model, want, wantSent := t.model.step(e.command, e.µs)
	model.replica, model.hidden = false, false
	t.model = model

	call, requests := t.encode(e.command)
	source := call.source
	single := requests[0].kind == 0
	if t.complete && !single {
		source = strings.Replace(runScript.source, "local us, tried\n", "local us, tried = nil, true\n", 1)
	}
	if e.hidden {
		source = withoutHistory + source
	}
	if e.replica {
		t.subject.replica(true)
	}
	reply := t.subject.eval(t.subject.prelude+source, call.args[2:])
	if e.replica {
		t.subject.replica(false)
		if t.subject.kind == "embedded" {
			t.subject.promote()
		}
		t.nameHistory()
	}

	answers, err := call.Answers(reply)
	if err != nil {
		return fmt.Sprintf("the command is answered %v: %v", reply, err)
	}
	var differences []string
	for i, r := range requests {
		got, err := answers.Next(r)
		got.Memory = t.named(got.Memory)
		t.reached[r.op.name()+" "+got.Verdict.String()]++
		if err != nil || !reflect.DeepEqual(got, want[i]) {
			differences = append(differences, fmt.Sprintf("request %d is answered\n  %s %v, in the model\n  %s", i, showReply(got), showError(err), showReply(want[i])))
		}
		t.learn(e.command.requests[i], want[i])
	}
	sent := t.subject.takeSent()
	slices.SortFunc(sent, noticeModel.compare)
	slices.SortFunc(wantSent, noticeModel.compare)
	if !slices.Equal(sent, wantSent) {
		differences = append(differences, fmt.Sprintf("notices %v, in the model %v", sent, wantSent))
	}
	if text := t.compareStore(began, before); text != "" {
		differences = append(differences, text)
	}
	return strings.Join(differences, "\n")
}

func (n noticeModel) compare(m noticeModel) int {
	return cmp.Or(strings.Compare(n.channel, m.channel), strings.Compare(n.text, m.text))
}

func showError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// showReply shows the fields of a reply that are set.
func showReply(v Reply) string {
	text := v.Verdict.String()
	of := reflect.ValueOf(v)
	for i := range of.NumField() {
		name := of.Type().Field(i).Name
		if name == "Verdict" || of.Field(i).IsZero() {
			continue
		}
		value := of.Field(i).Interface()
		if d, ok := value.(*Record); ok {
			value = fmt.Sprintf("%+v", *d)
		}
		text += fmt.Sprintf(" %s=%v", name, value)
	}
	return text
}

// encode makes the command as a client does.
func (t *trial) encode(c commandModel) (Call, []Request) {
	k := NewKeyspace("p", 1, c.guarded)
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	h := NewPreamble(ms(c.window), ms(c.maxTTL), ms(c.lag))

	requests := make([]Request, len(c.requests))
	for i, q := range c.requests {
		l := k.LockOf(q.key, q.attempt)
		switch q.op {
		case OpAcquire:
			requests[i] = l.Acquire(MillisOf(ms(q.lease)), q.acquire)
		case OpRenew:
			renew := q.renew
			renew.Memory = t.real(renew.Memory)
			requests[i] = l.Renew(MillisOf(ms(q.lease)), 1, func(int) Renew { return renew })(0)
		case OpRelease:
			requests[i] = l.Release(q.release)
		case OpComplete:
			complete := q.complete
			complete.Memory = t.real(complete.Memory)
			requests[i] = l.Complete(1, func(int) Complete { return complete })(0)
		case OpTouch:
			requests[i] = k.Touch(0)
		case OpRevoke:
			requests[i] = l.Revoke(h)
		case OpForget:
			requests[i] = k.Forget(q.key, q.token)
		case OpProvision:
			requests[i] = k.Provision(0, q.claim, q.found)
		case OpLower:
			requests[i] = k.lowerRequest(0, q.step, MillisOf(ms(q.to)), q.mark)
		}
	}
	call := h.Encode(len(requests), func(i int) Request { return requests[i] }, t.real(c.memory), time.UnixMicro(c.wall))
	return call, requests
}

// A storedModel is what Redis must have under a name.
type storedModel struct {
	value string
	zset  []waitModel
	diesµ int64 // 0 = never
}

// store returns what Redis must have.
func (t *trial) store() map[string]storedModel {
	all := map[string]storedModel{}
	if text := t.model.guard.String(); text != "" {
		all["p{0}g"] = storedModel{value: text}
	}
	if note := t.model.note; note != (noteModel{}) {
		all["p{0}m"] = storedModel{value: fmt.Sprintf("%d %d", note.longest, note.since)}
	}
	for key, k := range t.model.keys {
		if k.diesµ > 0 {
			all["p{0}r:"+key] = storedModel{value: k.stored().String(), diesµ: k.diesµ}
		}
		if len(k.queue) > 0 {
			all["p{0}w:"+key] = storedModel{zset: k.queue, diesµ: k.queueDiesµ}
		}
		for attempt, e := range k.ends {
			all["p{0}x:"+attempt] = storedModel{value: e.how, diesµ: e.diesµ}
		}
	}
	return all
}

// stored returns the resource in the form in which it is stored.
func (k keyModel) stored() testutil.Resource {
	r := testutil.Resource{
		Expiry: k.expiry, Counter: k.counter, Before: k.before, Owner: k.owner, Metadata: k.carried,
		Next: k.turn, TurnUntil: k.turnUntil, MayHaveWaiter: k.marked, Ended: k.holdEnded,
	}
	if d := k.record; d != nil {
		r.Record = &testutil.ResourceRecord{Ballot: d.ballot, KeptUntil: d.kept, Origin: d.token, Result: d.result}
	}
	return r
}

// dies returns when Redis drops each key that has an end, µs.
func (t *trial) dies() map[string]int64 {
	all := map[string]int64{}
	for name, e := range t.store() {
		if e.diesµ > 0 {
			all[name] = e.diesµ
		}
	}
	return all
}

func (t *trial) lives() map[string]int64 { return t.dies() }

// compareStore reads all keys with plain commands, and returns what differs from the model.
func (t *trial) compareStore(began time.Time, before map[string]int64) string {
	want := t.store()
	names := map[string]bool{}
	listed, _ := t.subject.one("keys", "*").([]any)
	for _, name := range listed {
		if name := fmt.Sprint(name); !strings.HasPrefix(name, "test:") {
			names[name] = true
		}
	}
	for name := range want {
		names[name] = true
	}
	sorted := slices.Sorted(maps.Keys(names))

	var commands [][]any
	for _, name := range sorted {
		read := []any{"get", name}
		if strings.HasPrefix(name, "p{0}w:") {
			read = []any{"zrange", name, 0, -1, "withscores"}
		}
		commands = append(commands, read, []any{"pttl", name})
	}
	replies := t.subject.run(commands...)
	took := time.Since(began).Milliseconds()

	var differences []string
	for i, name := range sorted {
		differs := func(got, want any) {
			differences = append(differences, fmt.Sprintf("%s is\n  %v, in the model\n  %v", name, got, want))
		}

		e := want[name]
		value, life := replies[2*i], replies[2*i+1]
		if e.zset != nil || strings.HasPrefix(name, "p{0}w:") {
			got := t.waits(value)
			if !slices.Equal(got, e.zset) {
				differs(got, e.zset)
			}
		} else {
			got := ""
			if value != nil {
				got = t.named(fmt.Sprint(value))
			}
			if got != e.value {
				differs(showStored(name, got), showStored(name, e.value))
			}
		}

		left, _ := life.(int64)
		wantLeft := int64(-1)
		if e.diesµ > 0 {
			wantLeft = (e.diesµ - t.µs) / 1000
		} else if e.value == "" && e.zset == nil {
			wantLeft = -2
		}
		within := func(want int64) bool { return want-took-1 <= left && left <= want+1 }
		exact := within(wantLeft) && wantLeft >= 0 || left == wantLeft
		kept := t.subject.bonus > 0 && before[name] == e.diesµ && within(wantLeft+t.subject.bonus)
		if !exact && !kept {
			differs(fmt.Sprintf("kept for %d ms", left), fmt.Sprintf("kept for %d ms", wantLeft))
		}
	}
	return strings.Join(differences, "\n")
}

// waits reads the reply to ZRANGE.
func (t *trial) waits(reply any) (all []waitModel) {
	words, _ := reply.([]any)
	for len(words) > 0 {
		var member, score any
		if pair, ok := words[0].([]any); ok { // RESP3
			member, score = pair[0], pair[1]
			words = words[1:]
		} else {
			member, score = words[0], words[1]
			words = words[2:]
		}
		ticket, _ := strconv.ParseFloat(fmt.Sprint(score), 64)
		all = append(all, waitModel{fmt.Sprint(member), int64(ticket)})
	}
	return all
}

// showStored shows a stored value.
func showStored(name, value string) string {
	if !strings.HasPrefix(name, "p{0}r:") || value == "" {
		return strconv.Quote(value)
	}
	r, err := testutil.ParseResource(value)
	if err != nil {
		return fmt.Sprintf("%q: %v", value, err)
	}
	text := strings.NewReplacer("MayHaveWaiter", "Waited").Replace(fmt.Sprintf("%+v", r))
	if r.Record != nil {
		text += fmt.Sprintf(" %+v", *r.Record)
	}
	return text
}

// name returns the operation in a word.
func (o Op) name() string {
	return [...]string{"acquire", "renew", "release", "complete", "touch", "provision", "lower", "revoke", "forget", "probe"}[o]
}
