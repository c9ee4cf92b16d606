package core

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	type good map[string]vote
	for _, c := range []struct {
		script *script
		good   good
		bad    []string
	}{
		{acquireScript, good{
			"OK 5 9007199254740991 15 -":                       {verdict: VerdictGranted, clock: 5000, token: 9007199254740991, expiry: 15000, memory: "-"},
			"OK 5:20000 1812345678901234 15 0123abcd.17":       {verdict: VerdictGranted, clock: 5000, longest: 20 * time.Second, token: 1812345678901234, expiry: 15000, memory: "0123abcd.17"},
			"OK 5 6 15 - 4 1000 3 ":                            {verdict: VerdictGranted, clock: 5000, token: 6, expiry: 15000, memory: "-", record: rec(4, 1000*ms, 3, "")},
			"OK 5 6 15 - 4 1000 3 a b\n\x00":                   {verdict: VerdictGranted, clock: 5000, token: 6, expiry: 15000, memory: "-", record: rec(4, 1000*ms, 3, "a b\n\x00")},
			"HELD 5 7000 abc-1 0":                              {verdict: VerdictHeld, owner: "abc-1", clock: 5000, rest: 7000 * ms},
			"RESERVED 5 50 2":                                  {verdict: VerdictReserved, place: 2, clock: 5000, rest: 50 * ms},
			"HELD 5 0 - 0":                                     {verdict: VerdictHeld, owner: "-", clock: 5000},
			"HELD 5 1 abc-1 3 \x00\x00\x0b00-trace-01":         {verdict: VerdictHeld, place: 3, owner: "abc-1", hint: "00-trace-01", clock: 5000, rest: ms},
			"QUARANTINED 5 7000":                               {verdict: VerdictQuarantined, clock: 5000, rest: 7000 * ms},
			"QUARANTINED 5:1 7000 4 1000 3 x":                  {verdict: VerdictQuarantined, clock: 5000, longest: ms, rest: 7000 * ms, record: rec(4, 1000*ms, 3, "x")},
			"DONE 5 4 1000 3 ":                                 {verdict: VerdictDone, clock: 5000, record: rec(4, 1000*ms, 3, "")},
			"DONE 5 4 1000 3  ":                                {verdict: VerdictDone, clock: 5000, record: rec(4, 1000*ms, 3, " ")},
			"DONE 5 4 1000 3 12 34":                            {verdict: VerdictDone, clock: 5000, record: rec(4, 1000*ms, 3, "12 34")},
			"TOMBSTONE 5":                                      {verdict: VerdictGone, clock: 5000},
			"LOST 5":                                           {verdict: VerdictGone, clock: 5000},
			"CLOCK 1795000000123456":                           {verdict: VerdictClockSkewed, clock: 1795000000123456},
			"REPLICA 5":                                        {verdict: VerdictReplica, clock: 5000},
			"NOGUARD 5":                                        {verdict: VerdictUnguarded, clock: 5000},
			"HELD 5 7000 abc-1 0 " + strings.Repeat("x", 1000): {verdict: VerdictHeld, owner: "abc-1", clock: 5000, rest: 7000 * ms},
		}, []string{
			// What another script says, or none, is no grant; least of all one with token 0.
			"OK", "OK 5", "OK 5 6", "AGAIN", "GONE", "+OK", "HEALED 5 9 -", "PASSED 5 9 -", "WAIT 5", "FORGOT 5", "NEW x",
			"OK 5 0 15 -", "OK 0 6 15 -", "OK 5 6 4 -", "OK 5 9007199254740992 15 -", "OK 5 9223372036854775807 15 -", "OK 5 6 15",
			"OK 5 6 15 ", "OK 5 6 x -", "OK 5 x 15 -", "OK 5 -6 15 -", "OK 5 1.7951808857046e+15 15 -", "OK 5: 6 15 -", "OK 5:x 6 15 -",
			"OK 5:99999999999 6 15 -", "OK 5 6 15 - 4", "OK 5 6 15 - 4 1000", "OK 5 6 15 - 4 1000 x y", "OK 5 6 15 - 0 1000 3 y",
			"HELD", "HELD 5", "HELD 5 7", "HELD 5 7 a", "HELD 5 7 a -", "HELD x 5 a 0", "HELD 5 x a 0", "HELD 5 -7 a 0", "HELD 5 9007199254740991 a 0",
			"RESERVED", "RESERVED 5", "RESERVED 5 7", "RESERVED 5 7 x", "RESERVED 5 7 1 2",
			"QUARANTINED", "QUARANTINED 5", "QUARANTINED 5 6 7", "CLOCK", "CLOCK x", "CLOCK 5 6",
			"DONE", "DONE 5", "DONE 5 4 1000", "DONE 5 4 x 3 ", "DONE 5 -4 1000 3 ", "DONE 5 0 1000 3 ", "DONE 5 4 9007199254740991 3 ",
			"LOST", "LOST x", "LOST 5 6", "TOMBSTONE 0", "REPLICA", "OK 99999999999999999999 6 15 -",
		}},
		{renewScript, good{
			"OK 5 1795000000123 -":            {verdict: VerdictGranted, clock: 5000, expiry: 1795000000123000, memory: "-"},
			"HEALED 5 9 0123abcd.5":           {verdict: VerdictHealed, clock: 5000, expiry: 9000, memory: "0123abcd.5"},
			"PASSED 5:60000 9 0123abcd.5":     {verdict: VerdictPassed, clock: 5000, longest: time.Minute, expiry: 9000, memory: "0123abcd.5"},
			"WAIT 5":                          {verdict: VerdictUnconfirmed, clock: 5000},
			"LOST 1795000000123":              {verdict: VerdictGone, clock: 1795000000123000},
			"TOMBSTONE 5":                     {verdict: VerdictGone, clock: 5000},
			"QUARANTINED 5 7000":              {verdict: VerdictQuarantined, clock: 5000, rest: 7000 * ms},
			"CLOCK 1795000000123456":          {verdict: VerdictClockSkewed, clock: 1795000000123456},
			"REPLICA 5":                       {verdict: VerdictReplica, clock: 5000},
			"NOGUARD 5":                       {verdict: VerdictUnguarded, clock: 5000},
			"OK 1795000000000 1795000000000 ": {err: errBadReply},
		}, []string{"OK", "OK 5", "OK 5 9", "OK 5 4 -", "OK 5 6 15 -", "HEALED", "HEALED 5", "HEALED 0 0 0", "HEALED 5 9", "HEALED 5 9 - x",
			"AGAIN", "GONE", "WAIT x", "WAIT 5 9", "HELD 5 7 a 0", "DONE 5 4 1000 3 "}},
		{completeScript, good{
			"OK 1795000000123":       {verdict: VerdictGranted, clock: 1795000000123000},
			"DONE 5 4 1000 3":        {verdict: VerdictDone, clock: 5000, record: rec(4, 1000*ms, 3, "")},
			"LOST 5":                 {verdict: VerdictGone, clock: 5000},
			"FORGOT 5":               {verdict: VerdictForgotten, clock: 5000},
			"WAIT 5":                 {verdict: VerdictUnconfirmed, clock: 5000},
			"CLOCK 1795000000123456": {verdict: VerdictClockSkewed, clock: 1795000000123456},
			"REPLICA 5":              {verdict: VerdictReplica, clock: 5000},
			"NOGUARD 5":              {verdict: VerdictUnguarded, clock: 5000},
		}, []string{"OK", "OK 0", "OK 5 6", "AGAIN", "GONE", "TOMBSTONE 5", "QUARANTINED 5 6", "DONE 5 4 1000"}},
		{releaseScript, good{
			"OK": {verdict: VerdictGranted}, "AGAIN": {verdict: VerdictGranted}, "GONE": {verdict: VerdictGone}, "REVOKED": {verdict: VerdictGone, revoked: true},
		}, []string{"OK 5", "LOST 5", "gone", "GONE 5", "REVOKED 5"}},
		{revokeScript, good{"ENDED 7000": {verdict: VerdictGranted, rest: 7000 * ms}, "GONE": {verdict: VerdictGone}}, []string{"ENDED", "ENDED 5 6", "OK"}},
		{forgetScript, good{"OK": {verdict: VerdictGranted}, "NONE": {verdict: VerdictGone}, "OTHER": {verdict: VerdictDone}}, []string{"OK 5", "GONE"}},
		{provisionScript, good{
			"OK 0123abcd.5": {verdict: VerdictGranted, memory: "0123abcd.5"}, "UNUSED 0123abcd.5 abc": {verdict: VerdictGranted, memory: "0123abcd.5", claim: "abc"},
			"NEW abc":            {verdict: VerdictQuarantined, claim: "abc"},
			"QUARANTINED 5 7000": {verdict: VerdictQuarantined, clock: 5000, rest: 7000 * ms},
			"REPLICA 5":          {verdict: VerdictReplica, clock: 5000}, "NOGUARD 5": {verdict: VerdictUnguarded, clock: 5000},
		}, []string{"OK", "NEW", "NEW a b", "UNUSED", "UNUSED a", "UNUSED a b c", "OK a b", "REPLICA 0"}},
	} {
		for reply, want := range c.good {
			if got := c.script.parse(reply); !reflect.DeepEqual(got, want) {
				t.Errorf("%v: parse(%q)\n got %+v\nwant %+v", c.script.op, reply, got, want)
			}
		}
		for _, reply := range append(c.bad, "", " ", "ok", "PONG", "KNOWN", "OKAY 5", " OK", "failed", "NOSCRIPT x") {
			if got := c.script.parse(reply); !reflect.DeepEqual(got, vote{err: errBadReply}) {
				t.Errorf("%v: parse(%q) is %+v", c.script.op, reply, got)
			}
		}
	}
}

// said is what the heads of the .lua files promise: # is a number, @ what a node remembers. So reading a reply and
// matching it must agree, but for what only the numbers' values show.
var said = map[*script]*regexp.Regexp{
	touchScript: forms(`OK ~ @`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(REPLICA|NOGUARD) ~`, `CLOCK #`),
	probeScript: forms(`OK`),
	acquireScript: forms(`OK ~ # # @( # # # (?s:.*))?`, `HELD ~ # [^ ]+ #( (?s:.*))?`, `RESERVED ~ # #`, `DONE ~ # # # (?s:.*)`, `QUARANTINED ~ #( # # # (?s:.*))?`,
		`(TOMBSTONE|LOST|REPLICA|NOGUARD) ~`, `CLOCK #`),
	renewScript:     forms(`(OK|HEALED|PASSED) ~ # @`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(WAIT|LOST|TOMBSTONE|REVOKED|REPLICA|NOGUARD) ~`, `CLOCK #`),
	completeScript:  forms(`DONE ~ # # #`, `(OK|LOST|FORGOT|WAIT|REPLICA|NOGUARD) ~`, `CLOCK #`),
	releaseScript:   forms(`OK`, `AGAIN`, `GONE`, `REVOKED`),
	revokeScript:    forms(`ENDED #`, `GONE`),
	forgetScript:    forms(`OK`, `NONE`, `OTHER`),
	provisionScript: forms(`OK @`, `NEW [^ ]+`, `UNUSED @ [^ ]+`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(REPLICA|NOGUARD) ~`, `CLOCK #`),
}

func forms(forms ...string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer("#", "[0-9]+", "@", "[^ ]+", "~", "[0-9]+(:[0-9]+)?").Replace(`^(` + strings.Join(forms, "|") + `) ?$`))
}

// FuzzParse: whatever a server answers, reading it does not panic; and what the script cannot have said is no vote.
func FuzzParse(f *testing.F) {
	for _, reply := range []string{"OK", "OK 5", "OK 5 6", "OK 5 6 15 -", "OK 5:9 6 15 0123abcd.1 4 1000 3 result \x00 1 2", "HELD 5 7 abc-1 0", "RESERVED 5 7 1",
		"QUARANTINED 5 6", "DONE 5 4 1000 3 ", "DONE 5 4 1000 3", "HEALED 5 9 -", "HEALED 0 0 0", "LOST 5", "CLOCK 5", "REPLICA", "AGAIN", "NOSCRIPT", "HELD 5", "OK x",
		"OK 5 9223372036854775807 15 -", "NEW claim"} {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		for s, form := range said {
			v := s.parse(reply)
			if v.verdict == VerdictFailed {
				wantMalformed(t, s, reply, v)
			} else {
				wantWellFormed(t, s, reply, v)
			}
			switch matches := form.MatchString(reply); {
			case v.verdict != VerdictFailed && !matches:
				t.Fatalf("%v: %q is no reply of the script, got %+v", s.op, reply, v)
			case v.verdict == VerdictFailed && matches && !oddNumbers(reply):
				t.Fatalf("%v: %q is a reply of the script, and was refused", s.op, reply)
			}
		}
	})
}

// wantMalformed checks that nothing of a reply that is refused is used.
func wantMalformed(t *testing.T, s *script, reply string, v vote) {
	if !errors.Is(v.err, errBadReply) {
		t.Fatalf("%v: %q: verdict %v with error %v", s.op, reply, v.verdict, v.err)
	}
	if !reflect.DeepEqual(v, vote{err: errBadReply}) {
		t.Fatalf("%v: %q: a malformed reply leaves %+v", s.op, reply, v)
	}
}

// wantWellFormed checks that what a reply says is in range.
func wantWellFormed(t *testing.T, s *script, reply string, v vote) {
	if v.err != nil {
		t.Fatalf("%v: %q: verdict %v with error %v", s.op, reply, v.verdict, v.err)
	}
	if v.token > maxNumber || v.expiry > maxNumber || v.rest < 0 || v.longest < 0 || v.clock < 0 || v.record != nil && v.record.rest < 0 {
		t.Fatalf("%v: %q: out of range: %+v", s.op, reply, v)
	}
	if v.verdict == VerdictGranted && s == acquireScript && (v.token == 0 || v.expiry < v.clock/1000) {
		t.Fatalf("%q is a grant: %+v", reply, v)
	}
}

// oddNumbers reports whether a reply of the right form may be refused for its numbers: zero, too great, or past.
func oddNumbers(reply string) bool {
	var all []int64
	for _, m := range regexp.MustCompile(`[0-9]+`).FindAllString(reply, -1) {
		n, err := strconv.ParseInt(m, 10, 64)
		if err != nil || n == 0 || n > 1<<31 {
			return true
		}
		all = append(all, n)
	}
	return !slices.IsSorted(all)
}

// Verdicts go into metrics and logs by name: each has one, and no two the same.
func TestVerdictNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Verdict{}
	for v := VerdictFailed; v <= VerdictCircuitOpen; v++ {
		name := v.String()
		if other, twice := seen[name]; twice || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) || name == "unknown" {
			t.Errorf("verdict %d is called %q, as is %d", v, name, other)
		}
		seen[name] = v
	}
	if got := (VerdictCircuitOpen + 1).String(); got != "unknown" {
		t.Errorf("a verdict that is none is called %q", got)
	}
}

// What each script says is what is read of it, word for word.
func TestGrammarOfEveryScript(t *testing.T) {
	t.Parallel()
	for _, s := range allScripts {
		if s == batchScript {
			continue // each of its replies is another script's
		}
		words := map[string]bool{}
		for _, m := range regexp.MustCompile(`'([A-Z]{2,}) ?'`).FindAllStringSubmatch(s.source, -1) {
			if word := m[1]; !redisCommands[word] {
				words[word] = true
			}
		}
		read := slices.Sorted(maps.Keys(s.replies))
		if got := slices.Sorted(maps.Keys(words)); !slices.Equal(got, read) {
			t.Errorf("%v: the script says %v, and what is read is %v", s.op, got, read)
		}
	}
}

var redisCommands = map[string]bool{"GET": true, "DEL": true, "KEEPTTL": true, "LAYOUT": true, "TIME": true, "INFO": true, "HMGET": true, "HSET": true, "HDEL": true, "EXISTS": true, "SET": true, "PX": true, "XX": true, "PEXPIRE": true,
	"ZADD": true, "ZCARD": true, "ZRANGE": true, "ZRANK": true, "ZREM": true, "ZREMRANGEBYRANK": true, "PUBLISH": true, "SPUBLISH": true, "PING": true}
