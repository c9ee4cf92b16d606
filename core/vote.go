package core

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// A vote is what one node answered in one round.
type vote struct {
	verdict Verdict
	clock   nodeTime      // 0 where the reply has none
	longest time.Duration // the longest lease in use, where the node knows of a longer one than this process
	token   uint64        // granted: token on that node
	expiry  nodeTime      // granted, renewed: logical expiry
	rest    time.Duration // held, quarantined: time left
	memory  string        // granted, renewed: what the node remembers, "<history>.<since>"; "-" without guard
	place   int           // held, reserved: of the call in the queue, the first is 1; 0 = it is not in it
	owner   string        // held: the attempt that holds it,
	hint    string        // and the hint of its holder
	claim   string        // provisioned: the node is new, under this claim
	record  *nodeRecord   // the completion record on that node, where the reply shows one
	err     error
	waited  time.Duration // for its turn, before it was sent
	latency time.Duration
	skew    time.Duration // node's wall clock minus ours at the answer
	revoked bool          // the attempt was ended by Revoke
	slept   bool          // renewed: shows that our clock stood still meanwhile
}

// nodeRecord is a completion record as one node holds it.
type nodeRecord struct {
	ballot uint64
	rest   time.Duration
	Record
}

// aged is the record that a reply showed to a request of so long ago.
func (r *nodeRecord) aged(ago time.Duration) *nodeRecord {
	older := *r
	older.rest = max(r.rest-ago, time.Millisecond)
	return &older
}

// clone is the record for the caller, who may change it while requests that carry it are under way.
func (r *nodeRecord) clone() *Record { return &Record{r.Token, slices.Clone(r.Result)} }

// A grammar is what a script may answer: for each first word, the verdict, and what follows, as the head of its .lua file
// says it.
type grammar map[string]struct {
	verdict Verdict
	follows string
}

// revokedReply is the first word of what is said to an attempt that Revoke has ended.
const revokedReply = "REVOKED"

var (
	acquireReplies = grammar{
		"OK": {VerdictGranted, "now token expiry memory [record]"}, "HELD": {VerdictHeld, "now rest owner place [carried]"}, "RESERVED": {VerdictReserved, "now rest place"}, "DONE": {VerdictDone, "now record"}, "QUARANTINED": {VerdictQuarantined, "now rest [record]"},
		"TOMBSTONE": {VerdictGone, "now"}, "LOST": {VerdictGone, "now"},
		"CLOCK": {VerdictClockSkewed, "us"}, "REPLICA": {VerdictReplica, "now"}, "NOGUARD": {VerdictUnguarded, "now"},
	}
	renewReplies = grammar{
		"OK": {VerdictGranted, "now expiry memory"}, "HEALED": {VerdictHealed, "now expiry memory"}, "PASSED": {VerdictPassed, "now expiry memory"}, "WAIT": {VerdictUnconfirmed, "now"},
		"LOST": {VerdictGone, "now"}, "TOMBSTONE": {VerdictGone, "now"}, revokedReply: {VerdictGone, "now"},
		"QUARANTINED": {VerdictQuarantined, "now rest [record]"},
		"CLOCK":       {VerdictClockSkewed, "us"}, "REPLICA": {VerdictReplica, "now"}, "NOGUARD": {VerdictUnguarded, "now"},
	}
	completeReplies = grammar{
		"OK": {VerdictGranted, "now"}, "DONE": {VerdictDone, "now ballot"}, "LOST": {VerdictGone, "now"}, "FORGOT": {VerdictForgotten, "now"}, "WAIT": {VerdictUnconfirmed, "now"},
		"CLOCK": {VerdictClockSkewed, "us"}, "REPLICA": {VerdictReplica, "now"}, "NOGUARD": {VerdictUnguarded, "now"},
	}
	releaseReplies = grammar{
		"OK": {VerdictGranted, ""}, "AGAIN": {VerdictGranted, ""}, "GONE": {VerdictGone, ""}, revokedReply: {VerdictGone, ""},
		"LATE": {VerdictTooLate, ""},
	}
	revokeReplies = grammar{"ENDED": {VerdictGranted, "rest"}, "GONE": {VerdictGone, ""}}
	forgetReplies = grammar{"OK": {VerdictGranted, ""}, "NONE": {VerdictGone, ""}, "OTHER": {VerdictDone, ""}}
	touchReplies  = grammar{
		"OK": {VerdictGranted, "now memory"}, "QUARANTINED": {VerdictQuarantined, "now rest [record]"},
		"CLOCK": {VerdictClockSkewed, "us"}, "REPLICA": {VerdictReplica, "now"}, "NOGUARD": {VerdictUnguarded, "now"},
	}
	probeReplies     = grammar{"OK": {VerdictGranted, ""}}
	provisionReplies = grammar{
		"OK": {VerdictGranted, "memory"}, "UNUSED": {VerdictGranted, "memory claim"}, "NEW": {VerdictQuarantined, "claim"},
		"QUARANTINED": {VerdictQuarantined, "now rest [record]"}, "CLOCK": {VerdictClockSkewed, "us"},
		"REPLICA": {VerdictReplica, "now"}, "NOGUARD": {VerdictUnguarded, "now"},
	}
)

var errBadReply = errors.New("not a reply of lockkit's script: does something between here and Redis answer for it?")

// parse reads a reply of s. What is not exactly one is a failure of the node.
func (s *script) parse(reply string) vote {
	word, rest, _ := strings.Cut(reply, " ")
	form, ok := s.replies[word]
	if !ok {
		return vote{err: errBadReply}
	}
	v, f := vote{verdict: form.verdict, revoked: word == revokedReply}, fields{rest: rest}
	for name, more, _ := strings.Cut(form.follows, " "); name != ""; name, more, _ = strings.Cut(more, " ") {
		v.read(name, &f)
	}
	if f.bad || f.rest != "" {
		return vote{err: errBadReply}
	}
	return v
}

// parseInBatch reads one reply of a batch.
func (s *script) parseInBatch(reply string) vote {
	if text, isError := strings.CutPrefix(reply, "-"); isError {
		return failed(replyError(text))
	}
	return s.parse(reply)
}

// A replyError is what Redis answered to one request of a batch.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (replyError) RedisError() {}

// read reads a field of a reply.
func (v *vote) read(name string, f *fields) {
	switch name {
	case "us":
		v.clock = nodeTime(f.number())
	case "now":
		v.readClock(f)
	case "token":
		v.token = uint64(f.number())
		f.bad = f.bad || v.token == 0
	case "expiry": // which is never past
		v.expiry = nodeMillis(f.number())
		f.bad = f.bad || v.expiry < v.clock
	case "memory":
		v.memory = f.word()
	case "claim":
		v.claim = f.word()
	case "rest":
		v.rest = f.ms()
	case "place":
		v.place = int(f.number())
	case "owner":
		v.owner = f.word()
	case "[carried]":
		v.hint, f.rest = carried(f.rest).hint, ""
	case "ballot":
		v.record = f.ballot()
	case "record":
		v.record = f.record()
	case "[record]":
		if f.rest != "" {
			v.record = f.record()
		}
	}
}

// readClock reads the node's clock, and the longest lease where the node names it.
func (v *vote) readClock(f *fields) {
	clock, longest, told := strings.Cut(f.word(), ":")
	v.clock = nodeMillis(f.parse(clock))
	if told {
		v.longest = time.Duration(f.parse(longest)) * time.Millisecond
		f.bad = f.bad || v.longest > slack
	}
	f.bad = f.bad || v.clock <= 0
}

// fields cuts a reply at its spaces.
type fields struct {
	rest string
	more bool // a space followed the last word, so that rest is what is there, though it may be empty
	bad  bool
}

func (f *fields) word() string {
	w, rest, more := strings.Cut(f.rest, " ")
	f.rest, f.more = rest, more
	f.bad = f.bad || w == ""
	return w
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
	f.bad = f.bad || n > int64(maxRest/time.Millisecond)
	return time.Duration(n) * time.Millisecond
}

const maxRest = 100 * 365 * 24 * time.Hour

// ballot reads a record without its result.
func (f *fields) ballot() *nodeRecord {
	r := &nodeRecord{ballot: uint64(f.number()), rest: f.ms()}
	r.Token = uint64(f.number())
	f.bad = f.bad || r.ballot == 0
	return r
}

// record reads a record, whose result is all that is left.
func (f *fields) record() *nodeRecord {
	r := f.ballot()
	f.bad = f.bad || !f.more
	if f.rest != "" {
		r.Result = []byte(f.rest)
	}
	f.rest = ""
	return r
}

// errAhead is what a granted token means that is more than a day ahead of the node's clock, which no counter comes to by
// itself. Taken for good, it would leave the key without tokens.
var errAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: delete what this node has of the key when nobody holds it")

// failed is the vote of a node that answers with an error, or not at all.
func failed(err error) vote {
	if goredis.Says(err, "READONLY") {
		return vote{verdict: VerdictReplica, err: err}
	}
	return vote{verdict: VerdictFailed, err: err}
}
