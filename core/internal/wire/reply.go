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

// A Reply is the answer of a node. The grammar of the request says which fields a verdict sets.
type Reply struct {
	Verdict Verdict
	Clock   NodeTime      // the node's clock; 0 if the reply has none
	Longest time.Duration // the longest lease in use, if the node knows of a longer one than this process
	Token   uint64        // granted: the token on that node
	Expiry  NodeTime      // granted, renewed: the logical expiry
	Rest    time.Duration // held, quarantined: the remaining time
	Memory  string        // granted, renewed: the node's memory, see lua/guard.lua; NoMemory if there is no guard
	Place   int           // held, reserved: the place in the queue, 1 for the first; 0 if the call is not in it
	Owner   string        // held: the attempt that holds the key
	Hint    string        // held: the hint of the holder
	Claim   string        // to Provision: the claim under which the node is new; to Mark: the mark
	Record  *Record       // the completion record on that node, if the reply shows one
	Revoked bool          // the attempt was revoked
	Refused bool          // released: the node has refused a completion of the attempt, or its first release, before
}

// A grammar has the replies of a script. For each first word it has the verdict and the fields that follow, as the
// head of the .lua file lists them.
type grammar map[string]struct {
	verdict Verdict
	follows string
}

// The first words of replies to an attempt that its release or its completion did not end on the node.
const (
	revokedWord = "REVOKED"
	refusedWord = "REFUSED"
)

// grammars has the replies to requests, by operation.
var grammars = [...]grammar{
	OpAcquire: withChecks(grammar{
		"OK":          {Granted, "now token expiry memory [record]"},
		"DONE":        {Done, "now record"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
		"HELD":        {Held, "now rest owner place [carried]"},
		"RESERVED":    {Reserved, "now rest place"},
		"TOMBSTONE":   {Gone, "now"},
		"LOST":        {Gone, "now"},
	}),
	OpRenew: withChecks(grammar{
		"OK":          {Granted, "now expiry memory"},
		"HEALED":      {Healed, "now expiry memory"},
		"PASSED":      {Passed, "now expiry memory"},
		"WAIT":        {Unconfirmed, "now"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
		"LOST":        {Gone, "now"},
		"TOMBSTONE":   {Gone, "now"},
		revokedWord:   {Gone, "now"},
	}),
	OpComplete: withChecks(grammar{
		"OK":        {Granted, "now"},
		"DONE":      {Done, "now ballot"},
		"LOST":      {Gone, "now"},
		"FORGOT":    {Forgotten, "now"},
		"WAIT":      {Unconfirmed, "now"},
		revokedWord: {Gone, "now"},
	}),
	OpTouch: withChecks(grammar{
		"OK":          {Granted, "now memory"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
	}),
	OpProvision: withChecks(grammar{
		"OK":          {Granted, "memory"},
		"UNUSED":      {Granted, "memory claim"},
		"NEW":         {Quarantined, "claim"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
	}),
	OpLower: withChecks(grammar{
		"MARKED":      {Granted, "now claim"},
		"OK":          {Granted, "now"},
		"GONE":        {Gone, "now"},
		"QUARANTINED": {Quarantined, "now rest"},
	}),
	OpRelease: {
		"OK":        {Granted, ""},
		"AGAIN":     {Granted, ""},
		"GONE":      {Gone, ""},
		refusedWord: {Gone, ""},
		revokedWord: {Gone, ""},
		"LATE":      {TooLate, ""},
	},
	OpRevoke: {
		"ENDED": {Granted, "rest"},
		"GONE":  {Gone, ""},
	},
	OpForget: {
		"OK":    {Granted, ""},
		"NONE":  {Gone, ""},
		"OTHER": {Done, ""},
	},
	OpProbe: nil,
}

// withChecks adds the replies of scripts that first check the clocks and the guard.
func withChecks(g grammar) grammar {
	maps.Copy(g, grammar{
		"CLOCK":   {ClockSkewed, "us"},
		"REPLICA": {Replica, "now"},
		"NOGUARD": {Unguarded, "now"},
	})
	return g
}

// ErrBadReply is returned for a text that the script cannot have sent.
var ErrBadReply = errors.New("not a reply of lockkit's script: does something between here and Redis answer for it?")

// Decode parses a reply. If it is not exactly a reply to this request, Decode returns ErrBadReply, and the node has
// failed.
func (r Request) Decode(reply string) (Reply, error) {
	word, rest, _ := strings.Cut(reply, " ")
	form, known := grammars[r.op][word]

	v := Reply{Verdict: form.verdict, Revoked: word == revokedWord, Refused: word == refusedWord}
	f := replyReader{rest: rest, invalid: !known}
	for name := range strings.FieldsSeq(form.follows) {
		v.read(name, &f)
	}

	if f.invalid || f.rest != "" {
		return Reply{}, ErrBadReply
	}
	return v, nil
}

// read reads the next field of a reply, by its name in the grammar.
func (v *Reply) read(name string, f *replyReader) {
	switch name {
	case "us":
		v.Clock = NodeTime(f.number())
	case "now":
		// The clock in ms. The longest lease in use follows if the node knows of a longer one.
		clock, longest, told := strings.Cut(f.word(), ":")
		v.Clock = nodeMillis(f.parse(clock))
		if told {
			v.Longest = time.Duration(f.parse(longest)) * time.Millisecond
		}
		f.invalid = f.invalid || v.Clock <= 0 || v.Longest > Slack
	case "token":
		v.Token = uint64(f.number())
		f.invalid = f.invalid || v.Token == 0
	case "expiry":
		// A lease that is granted or renewed has not expired.
		v.Expiry = nodeMillis(f.number())
		f.invalid = f.invalid || v.Expiry < v.Clock
	case "memory":
		v.Memory = f.word()
	case "claim":
		v.Claim = f.word()
	case "rest":
		v.Rest = f.duration()
	case "place":
		v.Place = int(f.number())
	case "owner":
		v.Owner = f.word()
	case "[carried]":
		v.Hint = ParseCarried(f.rest).Hint
		f.rest = ""
	case "ballot":
		v.Record = f.recordHead()
	case "record":
		v.Record = f.record()
	case "[record]":
		if f.rest != "" {
			v.Record = f.record()
		}
	}
}

// A replyReader reads the words of a reply. A word that cannot be read is zero, and sets invalid.
type replyReader struct {
	rest    string
	spaced  bool // a space follows the last word, so the reply has a rest, even if that is empty
	invalid bool
}

func (f *replyReader) word() string {
	word, rest, more := strings.Cut(f.rest, " ")
	f.rest = rest
	f.spaced = more
	f.invalid = f.invalid || word == ""
	return word
}

// maxNumber is the greatest integer up to which Lua is exact.
const maxNumber = 1<<53 - 1

func (f *replyReader) number() int64 {
	return f.parse(f.word())
}

func (f *replyReader) parse(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 64)
	f.invalid = f.invalid || err != nil || n > maxNumber
	return int64(n)
}

// duration reads a remaining time in ms. More than a century is invalid: three centuries do not fit into a Duration.
func (f *replyReader) duration() time.Duration {
	n := f.number()
	f.invalid = f.invalid || n > 100*365*24*time.Hour.Milliseconds()
	return time.Duration(n) * time.Millisecond
}

// recordHead reads a record without its result.
func (f *replyReader) recordHead() *Record {
	r := &Record{Ballot: uint64(f.number()), Rest: f.duration(), Token: uint64(f.number())}
	f.invalid = f.invalid || r.Ballot == 0
	return r
}

// record reads a record. The rest of the reply is its result.
func (f *replyReader) record() *Record {
	r := f.recordHead()
	f.invalid = f.invalid || !f.spaced

	r.Result = append(r.Result, f.rest...)
	f.rest = ""
	return r
}

// Answers has the answers of a node to a command, in the order of its requests.
type Answers struct {
	memory string
	clock  int64 // the answer to all requests that are not in others: the node's clock in ms, or 1 if it was not read
	others []any // number and text of each answer that is not the clock, in their order
	number int64
}

// Answers splits the reply to a command into the answers to its requests.
func (c Call) Answers(reply any) (Answers, error) {
	switch reply := reply.(type) {
	case int64:
		return Answers{memory: c.memory, clock: reply}, nil
	case string:
		// The answer to a request that has its own script.
		return Answers{memory: c.memory, others: []any{int64(1), reply}}, nil
	case []any:
		if len(reply)%2 == 0 {
			return Answers{}, ErrBadReply
		}

		plain, ok := reply[0].(int64)
		if ok {
			return Answers{memory: c.memory, clock: plain, others: reply[1:]}, nil
		}
	}
	return Answers{}, ErrBadReply
}

// Next returns the answer to the next request of the command, which is r.
func (a *Answers) Next(r Request) (Reply, error) {
	a.number++
	if len(a.others) == 0 || a.others[0] != any(a.number) {
		return r.decodePlain(a.clock, a.memory)
	}

	text, _ := a.others[1].(string) // empty if it is no text: then Decode fails
	a.others = a.others[2:]

	if reason, failed := strings.CutPrefix(text, "-"); failed {
		return Reply{}, replyError(faults.Clip(reason))
	}
	return r.Decode(text)
}

// decodePlain decodes the short reply, a clock alone: the request was granted.
func (r Request) decodePlain(clock int64, memory string) (Reply, error) {
	if r.op == OpRelease && clock > 0 {
		return Reply{Verdict: Granted}, nil
	}

	possible := r.kind == kindPlainAcquire || r.kind == kindPlainRenew
	isClock := 1 < clock && clock <= maxNumber
	if !possible || !isClock {
		return Reply{}, ErrBadReply
	}

	v := Reply{
		Verdict: Granted,
		Clock:   nodeMillis(clock),
		Expiry:  nodeMillis(clock + r.lease.ms),
		Memory:  memory,
	}
	if r.kind == kindPlainAcquire {
		// A plain acquisition is granted the token that it proposed, the first number of its payload.
		own := unpacker{rest: string(r.payload[:8])}
		v.Token = own.number()
	}
	return v, nil
}

// A replyError is the error with which Redis answered one request of a command.
type replyError string

func (e replyError) Error() string {
	return string(e)
}

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}

// Rights are the ACL rules that the user of a server lacks: "+command", and "~prefix*" or "&prefix*" if the keys or
// the channels of the prefix are denied.
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

// String returns the rules, each once.
func (r Rights) String() string {
	// Commands come first, then keys, then channels.
	order := func(rule string) int {
		return strings.Index("+~&", rule[:1])
	}
	slices.SortFunc(r, func(a, b string) int {
		return cmp.Or(order(a)-order(b), strings.Compare(a, b))
	})

	return strings.Join(slices.Compact(r), " ")
}
