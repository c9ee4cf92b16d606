package core

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	rec := func(ballot uint64, rest time.Duration, origin uint64, result string) *nodeRecord {
		r := &nodeRecord{ballot: ballot, rest: rest, Record: Record{Token: origin}}
		if result != "" {
			r.Result = []byte(result)
		}
		return r
	}
	bad := vote{verdict: Failed, err: errBadReply}
	for _, c := range []struct {
		reply string
		want  vote
	}{
		{"OK", vote{verdict: Granted}},
		{"AGAIN", vote{verdict: Granted}},
		{"GONE", vote{verdict: Gone}},
		{"OK 1795000000123", vote{verdict: Granted, clock: 1795000000123000}},
		{"OK 5 1795000000123", vote{verdict: Granted, clock: 5000, expiry: 1795000000123}},
		{"HEALED 5 9", vote{verdict: Healed, clock: 5000, expiry: 9}},
		{"WAIT 5 9", vote{verdict: Unconfirmed, clock: 5000, expiry: 9}},
		{"OK 5 9007199254740991 15 -", vote{verdict: Granted, clock: 5000, token: 9007199254740991, expiry: 15, history: "-"}},
		{"OK 5 1812345678901234 15 0123abcd", vote{verdict: Granted, clock: 5000, token: 1812345678901234, expiry: 15, history: "0123abcd"}},
		{"OK 5 6 15 - 4 1000 3 ", vote{verdict: Granted, clock: 5000, token: 6, expiry: 15, history: "-", record: rec(4, 1000*ms, 3, "")}},
		{"OK 5 6 15 - 4 1000 3 a b\n\x00", vote{verdict: Granted, clock: 5000, token: 6, expiry: 15, history: "-", record: rec(4, 1000*ms, 3, "a b\n\x00")}},
		{"HELD 5 7000 abc-1", vote{verdict: Held, clock: 5000, rest: 7000 * ms, owner: "abc-1"}},
		{"HELD 5 0 -", vote{verdict: Held, clock: 5000, owner: "-"}},
		{"QUARANTINED 5 7000", vote{verdict: Quarantined, clock: 5000, rest: 7000 * ms}},
		{"DONE 5 4 1000 3 ", vote{verdict: Done, clock: 5000, token: 4, record: rec(4, 1000*ms, 3, "")}},
		{"DONE 5 4 1000 3  ", vote{verdict: Done, clock: 5000, token: 4, record: rec(4, 1000*ms, 3, " ")}},
		{"DONE 5 4 1000 3 12 34", vote{verdict: Done, clock: 5000, token: 4, record: rec(4, 1000*ms, 3, "12 34")}},
		{"LOST 5", vote{verdict: Gone, clock: 5000}},
		{"TOMBSTONE 5", vote{verdict: Gone, clock: 5000}},
		{"CLOCK 1795000000123456", vote{verdict: ClockSkewed, clock: 1795000000123456}},
		{"REPLICA 5", vote{verdict: Replica, clock: 5000}},
		{"REPLICA 0", vote{verdict: Replica}},
		{"NOGUARD 5", vote{verdict: Unguarded, clock: 5000}},
		{"OVERFLOW 5", vote{verdict: Overflow, clock: 5000}},
		{"", bad}, {" ", bad}, {"ok", bad}, {"PONG", bad}, {"KNOWN", bad}, {"OKAY 5", bad}, {" OK", bad}, {"failed", bad},
		{"OK x", bad}, {"OK 5 x", bad}, {"OK 5 6 x -", bad}, {"OK 1.79e15", bad}, {"OK 5 1.7951808857046e+15 15 -", bad},
		{"OK 5 6 15 - 4", bad}, {"OK 5 6 15 - 4 1000", bad}, {"OK 5 6 15 - 4 1000 x y", bad},
		{"HELD", bad}, {"HELD 5", bad}, {"HELD x 5 a", bad}, {"HELD 5 x a", bad},
		{"QUARANTINED", bad}, {"QUARANTINED 5", bad}, {"CLOCK", bad}, {"CLOCK x", bad},
		{"DONE", bad}, {"DONE 5", bad}, {"DONE 5 4 1000", bad}, {"DONE 5 4 x 3 ", bad},
		{"LOST x", bad}, {"HEALED 5", bad}, {"WAIT x 9", bad}, {"OK 99999999999999999999", bad}, {"OK 5 9223372036854775808 15 -", bad},
		// Cut off, or not a script's: a grant has three fields, no number has a sign, a renewal names its expiry.
		{"OK 5 6 15", bad}, {"OK 5 -6 15 -", bad}, {"HEALED", bad}, {"WAIT", bad}, {"HELD 5 -7 a", bad}, {"DONE 5 -4 1000 3 ", bad},
	} {
		if got := parse(c.reply); !reflect.DeepEqual(got, c.want) {
			t.Errorf("parse(%q)\n got %+v\nwant %+v", c.reply, got, c.want)
		}
	}
}

// mustRead is what the heads of the .lua files promise: # is a number, @ a history, _ the end. mayRead allows
// for what does no harm.
var (
	mustRead = grammar("#", "[0-9]{1,18}", "@", "([0-9a-f]{8}|-)", "_", "")
	mayRead  = grammar("#", "[0-9]+", "@", "[^ ]+", "_", " ?")
)

func grammar(fields ...string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer(fields...).Replace(`^(OK_|OK #_|OK # #_|OK # # # @_|OK # # # @ # # #_|OK # # # @ # # # (?s:.*)|AGAIN|GONE|` +
		`HEALED # #_|WAIT # #_|HELD # # \S+|DONE # # # # (?s:.*)|QUARANTINED # #|CLOCK #|` +
		`(LOST|TOMBSTONE|NOGUARD|OVERFLOW|REPLICA) #)$`))
}

// FuzzParse: whatever a server answers, reading it does not panic; what no script says is no vote, and what
// scripts say is one.
func FuzzParse(f *testing.F) {
	for _, reply := range []string{"OK", "OK 5", "OK 5 6", "OK 5 6 15 -", "OK 5 6 15 0123abcd 4 1000 3 result \x00 1 2", "HELD 5 7 abc-1",
		"QUARANTINED 5 6", "DONE 5 4 1000 3 ", "HEALED 5 9", "LOST 5", "CLOCK 5", "REPLICA", "AGAIN", "NOSCRIPT", "HELD 5", "OK x"} {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		v := parse(reply)
		word, _, _ := strings.Cut(reply, " ")
		if (v.verdict == Failed) != (v.err != nil) || v.err != nil && !errors.Is(v.err, errBadReply) {
			t.Fatalf("%q: verdict %v with error %v", reply, v.verdict, v.err)
		}
		if v.verdict == Failed && !reflect.DeepEqual(v, vote{verdict: Failed, err: errBadReply}) {
			t.Fatalf("%q: a malformed reply leaves %+v", reply, v)
		}
		if _, known := verdictOf[word]; !known && v.verdict != Failed {
			t.Fatalf("%q: no script says %q, got %v", reply, word, v.verdict)
		}
		if mustRead.MatchString(reply) && (v.verdict == Failed || v.verdict != verdictOf[word]) {
			t.Fatalf("%q is a script's reply, got %v", reply, v.verdict)
		}
		// Votes that count towards a lease must be well-formed.
		if v.verdict != Failed && confirms[word] && !mayRead.MatchString(reply) {
			t.Fatalf("%q is no script's reply, got %v: %+v", reply, v.verdict, v)
		}
	})
}

var confirms = map[string]bool{"OK": true, "HEALED": true}

// Verdicts go into metrics and logs by name: each has one, and no two the same.
func TestVerdictNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Verdict{}
	for v := Failed; v <= CircuitOpen; v++ {
		name := v.String()
		if other, twice := seen[name]; twice || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) || name == "unknown" {
			t.Errorf("verdict %d is called %q, as is %d", v, name, other)
		}
		seen[name] = v
	}
	if got := (CircuitOpen + 1).String(); got != "unknown" {
		t.Errorf("a verdict that is none is called %q", got)
	}
}

// Each word of the grammar at the heads of the scripts is known, and none else.
func TestVerdictOfEveryWord(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	source := prelude + acquireLua + renewLua + releaseLua + completeLua + provisionLua
	for _, m := range regexp.MustCompile(`'([A-Z]{2,}) ?'`).FindAllStringSubmatch(source, -1) {
		if word := m[1]; !redisCommands[word] {
			said[word] = true
		}
	}
	for word := range said {
		if _, known := verdictOf[word]; !known {
			t.Errorf("scripts say %q, which no verdict is for", word)
		}
	}
	for word := range verdictOf {
		if !said[word] {
			t.Errorf("no script says %q", word)
		}
	}
}

var redisCommands = map[string]bool{"TIME": true, "INFO": true, "HMGET": true, "HSET": true, "HDEL": true, "EXISTS": true, "SET": true, "PX": true, "PEXPIRE": true}
