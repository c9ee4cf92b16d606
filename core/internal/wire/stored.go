package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Stored is what a node stores for a key, see lua/resource.lua.
type Stored struct {
	Expiry  NodeTime // of the lease; 0 = it was ended
	Counter uint64   // the last fencing token
	Owner   string
	Holder  Holder
	Kept    NodeTime // until when the record counts
	Record  *Record  // nil = none
}

// Granted is when the last token was given out, as far as the clocks of nodes are right.
func (s *Stored) Granted() time.Time { return time.UnixMicro(int64(s.Counter)) }

// A Record is a completion record as one node holds it.
type Record struct {
	Ballot uint64
	Rest   time.Duration
	Token  uint64
	Result []byte
}

// Aged is the record that a reply showed to a request of so long ago.
func (r Record) Aged(ago time.Duration) *Record {
	r.Rest = max(r.Rest-ago, time.Millisecond)
	return &r
}

// Beats reports whether r has the greater ballot, or is kept for longer, which somebody may have been promised.
func (r *Record) Beats(other *Record) bool {
	return other == nil || r.Ballot > other.Ballot || r.Ballot == other.Ballot && r.Rest > other.Rest
}

// KeptTaken begins the name of the owner that is left where a key stays taken and nobody holds it: after it comes the
// attempt that was released so, or nothing where it was revoked. No name of an attempt begins so.
const KeptTaken = "~"

// errLayout is the error of what this version cannot read.
var errLayout = errors.New("what the node stores for the key was not written by this version of lockkit")

// ParseStored reads what a node stores for a key.
func ParseStored(text string) (s Stored, err error) {
	in := packed{rest: text}
	mark := in.take(1)
	s.Expiry, s.Counter = nodeMillis(int64(in.number())), in.number()
	in.take(8) // the counter before
	if mark == "\x03" {
		in.take(8) // when the last hold ended
	}
	s.Owner = in.text()
	if in.rest != "" {
		in.text()  // who has the next turn,
		in.take(8) // and until when
		s.Holder = ParseCarried(in.text())
	}
	if in.rest != "" {
		s.Record = &Record{Ballot: in.number()}
		s.Kept = nodeMillis(int64(in.number()))
		s.Record.Token, s.Record.Result = in.number(), []byte(in.rest)
	}
	if in.bad || mark != "\x02" && mark != "\x03" {
		return Stored{}, errLayout
	}
	return s, nil
}

// A packed is what Lua's struct.pack wrote. What cannot be read is zero, and noted.
type packed struct {
	rest string
	bad  bool
}

func (p *packed) take(n int) (taken string) {
	if len(p.rest) < n {
		p.bad, p.rest = true, ""
		return strings.Repeat("\x00", n)
	}
	taken, p.rest = p.rest[:n], p.rest[n:]
	return taken
}

// number reads a double that is a whole number.
func (p *packed) number() uint64 {
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(p.take(8))))
	if !(0 <= f && f <= maxNumber && f == math.Trunc(f)) {
		p.bad = true
		return 0
	}
	return uint64(f)
}

// text reads a text behind its length.
func (p *packed) text() string { return p.take(int(p.take(1)[0])) }

// What Lua's struct.unpack reads: a number ('d'), a text behind its length in a byte ('Bc0'), and 0 or 1 ('B').

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

func appendNumber(b []byte, n int64) []byte { return appendFloat(b, float64(n)) }

// appendText cuts a text that is too long, which no attempt, waiter or memory is.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint8)]
	return append(append(b, byte(len(s))), s...)
}

func oneOrZero(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// A Holder is what a lease carries of its holder: three texts, each behind its length; nothing where all are empty.
type Holder struct{ Note, Name, Hint string }

// Carried packs what a lease carries, for requests. A name that is too long is cut.
func (c Holder) Carried() string {
	if c == (Holder{}) {
		return ""
	}
	c.Name = strings.ToValidUTF8(c.Name[:min(len(c.Name), MaxName)], "")
	text := make([]byte, 0, 3+len(c.Note)+len(c.Name)+len(c.Hint))
	return string(appendText(appendText(appendText(text, c.Note), c.Name), c.Hint))
}

// ParseCarried takes apart what a lease carries. What was not written by this package is empty.
func ParseCarried(text string) (c Holder) {
	in := packed{rest: text}
	c = Holder{in.text(), in.text(), in.text()}
	if in.bad || in.rest != "" || len(c.Note) > MaxNote || len(c.Name) > MaxName || len(c.Hint) > MaxHint {
		return Holder{}
	}
	return c
}

// What only looks at a node reads its guard record by itself, since a script would begin the quarantine.

// A Guard is what a guard record says.
type Guard struct {
	State GuardState
	Fresh bool          // Provision has begun with the node, and not ended
	Left  time.Duration // of the quarantine; where it has not begun, all of it
}

// A GuardState is from the best on.
type GuardState int

const (
	GuardUnknown GuardState = iota // or there is no guard
	GuardVoting
	GuardQuarantined // it may have forgotten leases
	GuardChanged     // its record is of another replication history: the quarantine begins when it is asked for a lock
	GuardMissing     // likewise; there is no record
)

// ParseGuard reads a guard record, as lua/guard.lua has it. history and now are the node's, maxTTL and lag the Locker's.
func ParseGuard(record, history string, now NodeTime, maxTTL, lag time.Duration) Guard {
	memory, rest, _ := strings.Cut(record, " ")
	of, since, declared := readMemory(memory)
	quarantine := max(maxTTL, LongestOf(record)) + lag
	left := quarantine - now.Since(nodeMillis(since))
	switch {
	case history == "":
		return Guard{} // what answers is no Redis
	case record == "":
		return Guard{State: GuardMissing, Left: quarantine}
	case of != history || since < 0:
		return Guard{State: GuardChanged, Left: quarantine}
	case declared || left <= 0:
		return Guard{State: GuardVoting}
	}
	return Guard{State: GuardQuarantined, Fresh: strings.Contains(rest, " "), Left: left}
}

// NoMemory stands for memory that nobody can name: there is no guard.
const NoMemory = "-"

// readMemory takes apart what a node remembers: its replication history, and since when it does (ms; -1 = nobody can tell), or
// that it was declared new.
func readMemory(memory string) (history string, since int64, declared bool) {
	history, began, known := strings.Cut(memory, ".")
	if !known {
		return history, -1, false
	}
	began, declared = strings.CutSuffix(began, "!")
	return history, number(began), declared
}

// LongestOf is the longest lease in use that a guard record knows of; 0 if it does not.
func LongestOf(record string) time.Duration {
	_, rest, _ := strings.Cut(record, " ")
	longest, _, _ := strings.Cut(rest, " ")
	if ms := number(longest); 0 < ms && ms <= Slack.Milliseconds() {
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// number reads a number, -1 where there is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
