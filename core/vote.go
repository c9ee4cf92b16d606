package core

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
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

// A grammar is what a script may answer: for each first word, the verdict, and what follows. It stands at the
// head of each .lua file.
type grammar map[string]struct {
	verdict Verdict
	shape   shape
}

// A shape is what follows the first word of a reply.
type shape uint8

const (
	shapeNothing    shape = iota
	shapeMicros           // us
	shapeRest             // rest
	shapeClock            // now
	shapeGrant            // now token expiry memory [record]
	shapeRenewal          // now expiry memory
	shapeHolder           // now rest owner place [carried]
	shapePlace            // now rest place
	shapeRecord           // now record
	shapeBallot           // now ballot rest origin: a record without its result
	shapeQuarantine       // now rest [record]
	shapeMemory           // memory
	shapeVoting           // now memory
	shapeUnused           // memory claim
	shapeClaim            // claim
)

// revokedReply is the first word of what is said to an attempt that Revoke has ended.
const revokedReply = "REVOKED"

var (
	acquireReplies = grammar{
		"OK": {VerdictGranted, shapeGrant}, "HELD": {VerdictHeld, shapeHolder}, "RESERVED": {VerdictReserved, shapePlace}, "DONE": {VerdictDone, shapeRecord}, "QUARANTINED": {VerdictQuarantined, shapeQuarantine},
		"TOMBSTONE": {VerdictGone, shapeClock}, "LOST": {VerdictGone, shapeClock},
		"CLOCK": {VerdictClockSkewed, shapeMicros}, "REPLICA": {VerdictReplica, shapeClock}, "NOGUARD": {VerdictUnguarded, shapeClock},
	}
	renewReplies = grammar{
		"OK": {VerdictGranted, shapeRenewal}, "HEALED": {VerdictHealed, shapeRenewal}, "PASSED": {VerdictPassed, shapeRenewal}, "WAIT": {VerdictUnconfirmed, shapeClock},
		"LOST": {VerdictGone, shapeClock}, "TOMBSTONE": {VerdictGone, shapeClock}, revokedReply: {VerdictGone, shapeClock},
		"QUARANTINED": {VerdictQuarantined, shapeQuarantine},
		"CLOCK":       {VerdictClockSkewed, shapeMicros}, "REPLICA": {VerdictReplica, shapeClock}, "NOGUARD": {VerdictUnguarded, shapeClock},
	}
	completeReplies = grammar{
		"OK": {VerdictGranted, shapeClock}, "DONE": {VerdictDone, shapeBallot}, "LOST": {VerdictGone, shapeClock}, "FORGOT": {VerdictForgotten, shapeClock}, "WAIT": {VerdictUnconfirmed, shapeClock},
		"CLOCK": {VerdictClockSkewed, shapeMicros}, "REPLICA": {VerdictReplica, shapeClock}, "NOGUARD": {VerdictUnguarded, shapeClock},
	}
	releaseReplies = grammar{
		"OK": {VerdictGranted, shapeNothing}, "AGAIN": {VerdictGranted, shapeNothing}, "GONE": {VerdictGone, shapeNothing}, revokedReply: {VerdictGone, shapeNothing},
		"LATE": {VerdictTooLate, shapeNothing},
	}
	revokeReplies = grammar{"ENDED": {VerdictGranted, shapeRest}, "GONE": {VerdictGone, shapeNothing}}
	forgetReplies = grammar{"OK": {VerdictGranted, shapeNothing}, "NONE": {VerdictGone, shapeNothing}, "OTHER": {VerdictDone, shapeNothing}}
	touchReplies  = grammar{
		"OK": {VerdictGranted, shapeVoting}, "QUARANTINED": {VerdictQuarantined, shapeQuarantine},
		"CLOCK": {VerdictClockSkewed, shapeMicros}, "REPLICA": {VerdictReplica, shapeClock}, "NOGUARD": {VerdictUnguarded, shapeClock},
	}
	probeReplies     = grammar{"OK": {VerdictGranted, shapeNothing}}
	provisionReplies = grammar{
		"OK": {VerdictGranted, shapeMemory}, "UNUSED": {VerdictGranted, shapeUnused}, "NEW": {VerdictQuarantined, shapeClaim},
		"QUARANTINED": {VerdictQuarantined, shapeQuarantine}, "CLOCK": {VerdictClockSkewed, shapeMicros},
		"REPLICA": {VerdictReplica, shapeClock}, "NOGUARD": {VerdictUnguarded, shapeClock},
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
	v.read(form.shape, &f)
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

// read reads what follows the first word.
func (v *vote) read(s shape, f *fields) {
	switch s {
	case shapeNothing:
	case shapeMicros:
		v.clock = nodeTime(f.number())
	case shapeRest:
		v.rest = f.ms()
	case shapeUnused:
		v.memory, v.claim = f.word(), f.word()
	case shapeClaim:
		v.claim = f.word()
	case shapeMemory:
		v.memory = f.word()
	default:
		v.readClock(f)
		v.readAfterClock(s, f)
	}
}

func (v *vote) readAfterClock(s shape, f *fields) {
	switch s {
	case shapeGrant:
		v.token = uint64(f.number())
		f.bad = f.bad || v.token == 0
		v.readExpiry(f)
		v.readShown(f)
	case shapeRenewal:
		v.readExpiry(f)
	case shapeHolder:
		v.rest, v.owner, v.place = f.ms(), f.word(), int(f.number())
		v.hint = carried(f.rest).hint
		f.rest = ""
	case shapePlace:
		v.rest, v.place = f.ms(), int(f.number())
	case shapeVoting:
		v.memory = f.word()
	case shapeRecord:
		v.record = f.record()
	case shapeBallot:
		v.record = f.ballot()
	case shapeQuarantine:
		v.rest = f.ms()
		v.readShown(f)
	default: // nothing follows
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

// readExpiry reads an expiry, which is never past, and what the node remembers.
func (v *vote) readExpiry(f *fields) {
	v.expiry = nodeMillis(f.number())
	v.memory = f.word()
	f.bad = f.bad || v.expiry < v.clock
}

func (v *vote) readShown(f *fields) {
	if f.rest != "" {
		v.record = f.record()
	}
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
	if says(err, "READONLY") {
		return vote{verdict: VerdictReplica, err: err}
	}
	return vote{verdict: VerdictFailed, err: err}
}
