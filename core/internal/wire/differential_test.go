package wire

import (
	"cmp"
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

	"github.com/lockkit/lockkit/internal/nodemodel"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

var (
	modelCalls = flag.Int("model.calls", 1600, "how many random calls TestScriptsDoAsTheModel makes on an embedded node; a quarter as many on Redis")
	modelSeed  = flag.Int64("model.seed", -1, "the only seed that TestScriptsDoAsTheModel tries; -1 is for all")
)

// callsOfTrial is how many calls a seed makes.
const callsOfTrial = 40

// Random calls have the same replies and leave the same store behind on a node and in the model (package nodemodel), for
// the plain code of the scripts (even seeds) and for the complete code (odd seeds). The same holds for nodes that answer
// by the model, as they do in simulations: so these decode, store and answer what the scripts do. Between the calls,
// time passes, to the millisecond of what may end next; nodes are flushed, restarted empty, promoted and restored from
// snapshots; and requests arrive again, late, or never.
func TestScriptsDoAsTheModel(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		race.SkipSweep(t)
		scriptsDoAsTheModel(t, *modelCalls, append(mustReachInModel, "plain command"), func(play func(*subject)) {
			synctest.Test(t, func(t *testing.T) { play(newEmbeddedSubject(t)) })
		})
	})
	t.Run("embedded, by the model", func(t *testing.T) {
		race.SkipSweep(t)
		calls := 0
		scriptsDoAsTheModel(t, *modelCalls, mustReachInModel, func(play func(*subject)) {
			synctest.Test(t, func(t *testing.T) { play(newModelSubject(t, &calls)) })
		})
		if *modelSeed < 0 && calls < *modelCalls/2 {
			t.Errorf("the node has answered %d calls by the model, too few", calls)
		}
	})
	t.Run("Redis", func(t *testing.T) {
		race.SkipSweep(t)
		client := testutil.NewServers(t, 1)[0].Client()
		scriptsDoAsTheModel(t, *modelCalls/4, nil, func(play func(*subject)) { play(newRedisSubject(t, client)) })
	})
}

// scriptsDoAsTheModel tries seeds until it has made that many calls. If those are the usual number or more, it must reach
// each reply of mustReach. onNode lets a function play on an empty node.
func scriptsDoAsTheModel(t *testing.T, calls int, mustReach []string, onNode func(func(*subject))) {
	reached := map[string]int{}
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
			t.Fatal(shortest(failed, onNode))
		}
	}

	t.Logf("reached: %v", reached)
	if *modelSeed < 0 && calls >= 1600 {
		for _, what := range mustReach {
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
	"release gone refused", "release gone revoked", "renew gone revoked", "acquire quarantined record", "acquire held place",
	"acquire granted longest", "notice",
}

// A commandOfTrial is a command: the settings of the client, and requests that the node executes at one instant. Times
// are in ms.
type commandOfTrial struct {
	guarded             bool
	maxTTL, window, lag int64
	wall                int64  // the client's clock, µs
	assumed             string // the node's memory, as the client knows it: plain code or not depends on it
	requests            []requestOfTrial
}

// A requestOfTrial is a request, with the arguments of its operation.
type requestOfTrial struct {
	op           Op
	key, attempt string
	process      string // whose channel notifies the call; "" if it does not wait
	lease        int64

	acquire  Acquire
	renew    Renew
	complete Complete
	release  Release

	claim, found string // of Provision
	step, mark   string // of an operator's step to lower the longest lease
	to           int64
	token        uint64 // of Forget
}

// An event is what happens at a time: a call, or something to the node.
type event struct {
	µs      int64
	what    string // "call", "flush", "restart", "promote", "snapshot", "restore"
	command commandOfTrial
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
	stalled   bool // no more is played: the test was too slow for the server's own clock
	model     nodemodel.Node
	snapshot  nodemodel.Node
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
		subject: s, seed: seed, reached: reached, complete: seed%2 == 1 && !s.byModel, µs: trialStart,
		r: rand.New(rand.NewPCG(uint64(seed), 0)), attempts: map[string]*attemptOfTrial{},
	}
	s.one("flushall")
	s.promote()
	t.histories = []string{s.history()}
	t.model = nodemodel.Node{History: "h0", Keys: map[string]nodemodel.Key{}}
	t.snapshot = t.model

	t.guarded = t.r.IntN(4) > 0
	t.window = one(t.r, int64(0), 500, 500)
	t.lag = one(t.r, int64(0), 0, 2000, 600_000)
	t.maxTTLs = one(t.r, []int64{3_600_000}, []int64{3_600_000}, []int64{3_600_000, 5_400_000}, []int64{7_200_000, 14_400_000})
	return t
}

// drawAndPlay plays random events until something differs, and returns what.
func (t *trial) drawAndPlay() string {
	for len(t.events) < callsOfTrial && t.failure == "" && !t.stalled {
		e := t.draw()
		t.events = append(t.events, e)
		t.failure = t.play(e)
	}
	return t.failure
}

// replay plays these events, and returns what differs.
func (t *trial) replay(events []event) string {
	for _, e := range events {
		failure := t.play(e)
		if failure != "" || t.stalled {
			return failure
		}
	}
	return ""
}

// play lets an event happen on the subject and in the model, and returns what differs.
func (t *trial) play(e event) string {
	began := time.Now()
	t.µs = e.µs
	t.subject.setTime(e.µs, t.dies())
	t.model = t.model.Forget(e.µs)

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
	return t.compareStore(began, t.dies())
}

func (t *trial) flush() {
	t.subject.one("flushall")
	t.subject.setTime(t.µs, nil)
	t.model = nodemodel.Node{History: t.model.History, Keys: map[string]nodemodel.Key{}}
}

// newHistory gives the node a new replication history.
func (t *trial) newHistory() {
	t.subject.promote()
	t.nameHistory()
}

func (t *trial) nameHistory() {
	t.model.History = fmt.Sprintf("h%d", len(t.histories))
	t.histories = append(t.histories, t.subject.history())
}

// restore brings back what was stored at the time of the snapshot, with a new history.
func (t *trial) restore() {
	t.flush()
	history := t.model.History
	t.model = t.snapshot.Forget(t.µs)
	t.model.History = history
	for name, k := range t.model.Keys {
		k.Dies, k.QueueDies = t.toMillis(k.Dies), t.toMillis(k.QueueDies)
		for attempt, e := range k.Ends {
			k.Ends[attempt] = nodemodel.End{How: e.How, Dies: t.toMillis(e.Dies)}
		}
		t.model.Keys[name] = k
	}
	t.newHistory()

	var commands [][]any
	for name, e := range t.store() {
		if e.zset != nil {
			for _, w := range e.zset {
				commands = append(commands, []any{"zadd", name, w.Ticket, w.Member})
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
	t.model.Replica, t.model.Hidden = e.replica, e.hidden
	model, replies, wantSent := t.model.Step(e.command.model(), e.µs)
	model.Replica, model.Hidden = false, false
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
		if t.subject.bonus == 0 {
			t.subject.promote()
		}
		t.nameHistory()
	}

	if _, plain := reply.(int64); plain {
		t.reached["plain command"]++
	}
	answers, err := call.Answers(reply)
	if err != nil {
		return fmt.Sprintf("the command is answered %v: %v", reply, err)
	}
	var differences []string
	for i, r := range requests {
		want := ofModel(replies[i])
		got, err := answers.Next(r)
		got.Memory = t.named(got.Memory)
		t.count(r.op, got)
		if err != nil || !reflect.DeepEqual(got, want) {
			said := showReply(got)
			if err != nil {
				said = err.Error()
			}
			differences = append(differences, fmt.Sprintf("request %d is answered\n  %s, in the model\n  %s", i+1, said, showReply(want)))
		}
		t.learn(e.command.requests[i], want)
	}
	sent := t.subject.takeSent()
	slices.SortFunc(sent, compareNotices)
	slices.SortFunc(wantSent, compareNotices)
	for range sent {
		t.reached["notice"]++
	}
	if !slices.Equal(sent, wantSent) {
		differences = append(differences, fmt.Sprintf("notices %v, in the model %v", sent, wantSent))
	}
	if text := t.compareStore(began, before); text != "" {
		differences = append(differences, text)
	}
	return strings.Join(differences, "\n")
}

// count counts the reply to a request.
func (t *trial) count(op Op, v Reply) {
	what := op.name() + " " + v.Verdict.String()
	t.reached[what]++
	for flag, set := range map[string]bool{
		"refused": v.Refused, "revoked": v.Revoked, "record": v.Record != nil, "place": v.Place > 0, "longest": v.Longest > 0,
	} {
		if set {
			t.reached[what+" "+flag]++
		}
	}
}

func compareNotices(a, b nodemodel.Notice) int {
	return cmp.Or(strings.Compare(a.Channel, b.Channel), strings.Compare(a.Text, b.Text))
}

// encode makes the command as a client does.
func (t *trial) encode(c commandOfTrial) (Call, []Request) {
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
	call := h.Encode(len(requests), func(i int) Request { return requests[i] }, t.real(c.assumed), time.UnixMicro(c.wall))
	return call, requests
}

// A storedModel is what Redis must have under a name.
type storedModel struct {
	value string
	zset  []nodemodel.Wait
	diesµ int64 // 0 = never
}

// store returns what Redis must have.
func (t *trial) store() map[string]storedModel {
	all := map[string]storedModel{}
	if text := t.model.Guard.String(); text != "" {
		all["p{0}g"] = storedModel{value: text}
	}
	if note := t.model.Note; note != (nodemodel.Note{}) {
		all["p{0}m"] = storedModel{value: fmt.Sprintf("%d %d", note.Longest, note.Since)}
	}
	for key, k := range t.model.Keys {
		if k.Dies > 0 {
			all["p{0}r:"+key] = storedModel{value: k.Stored().String(), diesµ: k.Dies}
		}
		if len(k.Queue) > 0 {
			all["p{0}w:"+key] = storedModel{zset: k.Queue, diesµ: k.QueueDies}
		}
		for attempt, e := range k.Ends {
			all["p{0}x:"+attempt] = storedModel{value: e.How, diesµ: e.Dies}
		}
	}
	return all
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
	if t.subject.bonus > 0 && took > nodemodel.Rejoined/2 {
		// The machine stood still for so long that the server may have dropped a key.
		t.stalled = true
		return ""
	}

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
func (t *trial) waits(reply any) (all []nodemodel.Wait) {
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
		all = append(all, nodemodel.Wait{Member: fmt.Sprint(member), Ticket: int64(ticket)})
	}
	return all
}
