package wire

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A Reply is the answer of a node. The grammar of the request says which fields a verdict sets.
type Reply struct {
	Verdict   Verdict
	Clock     NodeTime      // the node's clock; 0 if the reply has none
	Longest   time.Duration // the longest lease in use, if the node knows of a longer one than this process
	Token     uint64        // granted: the token on that node
	Expiry    NodeTime      // granted, renewed: the logical expiry
	Remaining time.Duration // held, quarantined: the remaining time
	Memory    string        // granted, renewed: the node's memory, see lua/guard.lua; NoMemory if there is no guard
	Place     int           // held, reserved: the place in the queue, 1 for the first; 0 if the call is not in it
	Owner     string        // held: the attempt that holds the key
	Hint      string        // held: the hint of the holder
	Claim     string        // to Provision: the claim under which the node is new; to Mark: the mark
	Record    *Record       // the completion record on that node, if the reply shows one
	Revoked   bool          // the attempt was revoked
	Refused   bool          // released: the node has refused a completion of the attempt, or its first release, before
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
		f.invalid = f.invalid || v.Clock <= 0 || v.Longest > ExpirySlack
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
		v.Remaining = f.duration()
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
	spaced  bool // a space follows the last word, and then the rest, which may be empty
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
	r := &Record{Ballot: uint64(f.number()), Retention: f.duration(), Token: uint64(f.number())}
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
