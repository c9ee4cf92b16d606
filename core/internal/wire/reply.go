package wire

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/internal/faults"
)

// A Reply is what a node answered. Which fields a verdict sets is said by the script's grammar.
type Reply struct {
	Verdict Verdict
	Clock   NodeTime      // 0 where the reply has none
	Longest time.Duration // the longest lease in use, where the node knows of a longer one than this process
	Token   uint64        // granted: token on that node
	Expiry  NodeTime      // granted, renewed: logical expiry
	Rest    time.Duration // held, quarantined: time left
	Memory  string        // granted, renewed: what the node remembers, see lua/guard.lua; NoMemory without guard
	Place   int           // held, reserved: of the call in the queue, the first is 1; 0 = it is not in it
	Owner   string        // held: the attempt that holds it,
	Hint    string        // and the hint of its holder
	Claim   string        // provisioned: the node is new, under this claim; to be lowered: its mark
	Record  *Record       // the completion record on that node, where the reply shows one
	Revoked bool          // the attempt was ended by Revoke
	Refused bool          // released: the node has refused a completion of the attempt, or its first release, before
}

// A grammar is what a script may answer: for each first word, the verdict, and what follows, as the head of its .lua file
// says it.
type grammar map[string]struct {
	verdict Verdict
	follows string
}

// The first words of replies to an attempt that has ended on the node otherwise than by its release or completion.
const (
	revokedWord = "REVOKED"
	refusedWord = "REFUSED"
)

// grammars are what the answers to requests are.
var grammars = [...]grammar{
	OpAcquire: judged(grammar{
		"OK": {Granted, "now token expiry memory [record]"}, "DONE": {Done, "now record"}, "QUARANTINED": {Quarantined, "now rest [record]"},
		"HELD": {Held, "now rest owner place [carried]"}, "RESERVED": {Reserved, "now rest place"},
		"TOMBSTONE": {Gone, "now"}, "LOST": {Gone, "now"},
	}),
	OpRenew: judged(grammar{
		"OK": {Granted, "now expiry memory"}, "HEALED": {Healed, "now expiry memory"}, "PASSED": {Passed, "now expiry memory"},
		"WAIT": {Unconfirmed, "now"}, "QUARANTINED": {Quarantined, "now rest [record]"},
		"LOST": {Gone, "now"}, "TOMBSTONE": {Gone, "now"}, revokedWord: {Gone, "now"},
	}),
	OpComplete: judged(grammar{
		"OK": {Granted, "now"}, "DONE": {Done, "now ballot"}, "LOST": {Gone, "now"}, "FORGOT": {Forgotten, "now"}, "WAIT": {Unconfirmed, "now"},
		revokedWord: {Gone, "now"},
	}),
	OpTouch: judged(grammar{"OK": {Granted, "now memory"}, "QUARANTINED": {Quarantined, "now rest [record]"}}),
	OpProvision: judged(grammar{
		"OK": {Granted, "memory"}, "UNUSED": {Granted, "memory claim"}, "NEW": {Quarantined, "claim"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
	}),
	OpLower: judged(grammar{
		"MARKED": {Granted, "now claim"}, "OK": {Granted, "now"}, "GONE": {Gone, "now"}, "QUARANTINED": {Quarantined, "now rest"},
	}),
	OpRelease: {"OK": {Granted, ""}, "AGAIN": {Granted, ""}, "GONE": {Gone, ""}, refusedWord: {Gone, ""}, revokedWord: {Gone, ""}, "LATE": {TooLate, ""}},
	OpRevoke:  {"ENDED": {Granted, "rest"}, "GONE": {Gone, ""}},
	OpForget:  {"OK": {Granted, ""}, "NONE": {Gone, ""}, "OTHER": {Done, ""}},
	OpProbe:   nil,
}

// judged adds what scripts answer that judge the clocks and the guard before all else.
func judged(g grammar) grammar {
	maps.Copy(g, grammar{"CLOCK": {ClockSkewed, "us"}, "REPLICA": {Replica, "now"}, "NOGUARD": {Unguarded, "now"}})
	return g
}

// ErrBadReply is the error of what is not a reply.
var ErrBadReply = errors.New("not a reply of lockkit's script: does something between here and Redis answer for it?")

// Decode reads an answer in full. What is not exactly one is a failure of the node.
func (r Request) Decode(reply string) (Reply, error) {
	word, rest, _ := strings.Cut(reply, " ")
	form, known := grammars[r.op][word]
	v := Reply{Verdict: form.verdict, Revoked: word == revokedWord, Refused: word == refusedWord}
	f := fields{rest: rest, bad: !known}
	for name := range strings.FieldsSeq(form.follows) {
		v.read(name, &f)
	}
	if f.bad || f.rest != "" {
		return Reply{}, ErrBadReply
	}
	return v, nil
}

// read reads a field of a reply.
func (v *Reply) read(name string, f *fields) {
	switch name {
	case "us":
		v.Clock = NodeTime(f.number())
	case "now": // and the longest lease, where the node names it
		clock, longest, told := strings.Cut(f.word(), ":")
		v.Clock = nodeMillis(f.parse(clock))
		if told {
			v.Longest = time.Duration(f.parse(longest)) * time.Millisecond
		}
		f.bad = f.bad || v.Clock <= 0 || v.Longest > Slack
	case "token":
		v.Token = uint64(f.number())
		f.bad = f.bad || v.Token == 0
	case "expiry": // which is never past
		v.Expiry = nodeMillis(f.number())
		f.bad = f.bad || v.Expiry < v.Clock
	case "memory":
		v.Memory = f.word()
	case "claim":
		v.Claim = f.word()
	case "rest":
		v.Rest = f.ms()
	case "place":
		v.Place = int(f.number())
	case "owner":
		v.Owner = f.word()
	case "[carried]":
		v.Hint = ParseCarried(f.rest).Hint
		f.rest = ""
	case "ballot":
		v.Record = f.ballot()
	case "record":
		v.Record = f.record()
	case "[record]":
		if f.rest != "" {
			v.Record = f.record()
		}
	}
}

// fields cuts a reply at its spaces.
type fields struct {
	rest string
	more bool // a space followed the last word, so that rest is what is there, though it may be empty
	bad  bool
}

func (f *fields) word() string {
	word, rest, more := strings.Cut(f.rest, " ")
	f.rest = rest
	f.more = more
	f.bad = f.bad || word == ""
	return word
}

// maxNumber is the greatest whole number that Lua counts exactly.
const maxNumber = 1<<53 - 1

func (f *fields) number() int64 { return f.parse(f.word()) }

func (f *fields) parse(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 64)
	f.bad = f.bad || err != nil || n > maxNumber
	return int64(n)
}

// ms reads a time left. Centuries do not fit a Duration, and nothing lasts that long.
func (f *fields) ms() time.Duration {
	n := f.number()
	f.bad = f.bad || n > 100*365*24*time.Hour.Milliseconds()
	return time.Duration(n) * time.Millisecond
}

// ballot reads a record without its result.
func (f *fields) ballot() *Record {
	r := &Record{Ballot: uint64(f.number()), Rest: f.ms(), Token: uint64(f.number())}
	f.bad = f.bad || r.Ballot == 0
	return r
}

// record reads a record, whose result is all that is left.
func (f *fields) record() *Record {
	r := f.ballot()
	f.bad = f.bad || !f.more
	r.Result = append(r.Result, f.rest...)
	f.rest = ""
	return r
}

// Answers are what a node answered to a command, in the order of its requests.
type Answers struct {
	memory string
	plain  int64 // the node's clock in ms, or 1: to those that are not among
	odd    []any // number and text of each, in their order
	next   int64
}

// Answers takes the reply to a command apart.
func (c Call) Answers(reply any) (Answers, error) {
	switch reply := reply.(type) {
	case int64:
		return Answers{memory: c.memory, plain: reply}, nil
	case string: // of a request that has a script of its own
		return Answers{memory: c.memory, odd: []any{int64(1), reply}}, nil
	case []any:
		if len(reply)%2 == 0 {
			return Answers{}, ErrBadReply
		}
		plain, ok := reply[0].(int64)
		if ok {
			return Answers{memory: c.memory, plain: plain, odd: reply[1:]}, nil
		}
	}
	return Answers{}, ErrBadReply
}

// Next is the answer to the next request, which is r.
func (a *Answers) Next(r Request) (Reply, error) {
	a.next++
	if len(a.odd) == 0 || a.odd[0] != any(a.next) {
		return r.plain(a.plain, a.memory)
	}
	text, _ := a.odd[1].(string) // else it is empty, which is no reply
	a.odd = a.odd[2:]
	if reason, failed := strings.CutPrefix(text, "-"); failed {
		return Reply{}, replyError(faults.Clip(reason))
	}
	return r.Decode(text)
}

// plain is what a node says by its clock alone: it granted what was asked for.
func (r Request) plain(clock int64, memory string) (Reply, error) {
	if r.op == OpRelease && clock > 0 {
		return Reply{Verdict: Granted}, nil
	}
	possible := r.kind == plainAcquire || r.kind == plainRenew
	isClock := 1 < clock && clock <= maxNumber
	if !possible || !isClock {
		return Reply{}, ErrBadReply
	}
	v := Reply{Verdict: Granted, Clock: nodeMillis(clock), Expiry: nodeMillis(clock + r.lease.ms), Memory: memory}
	if r.kind == plainAcquire {
		own := packed{rest: string(r.own[:8])}
		v.Token = own.number()
	}
	return v, nil
}

// A replyError is what Redis answered to one request of a command.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (replyError) RedisError() {}

// Rights are the rules that a server's ACL lacks for its user: "+command", and "~prefix*" or "&prefix*" where it is the keys
// or the channels of the prefix that are denied.
type Rights []string

// ParseRights reads the reply to a Probe.
func ParseRights(reply, prefix string) (r Rights) {
	for word := range strings.FieldsSeq(strings.TrimPrefix(reply, "OK")) {
		switch of := word[len(word)-1:]; of {
		case "~", "&":
			r = append(r, of+prefix+"*")
		default:
			r = append(r, "+"+word)
		}
	}
	return r
}

// String is the rules, each once.
func (r Rights) String() string {
	order := func(rule string) int { return strings.Index("+~&", rule[:1]) }
	slices.SortFunc(r, func(a, b string) int { return cmp.Or(order(a)-order(b), strings.Compare(a, b)) })
	return strings.Join(slices.Compact(r), " ")
}
