package wire

import (
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
	rec := func(ballot uint64, rest time.Duration, origin uint64, result string) *Record {
		r := &Record{Ballot: ballot, Retention: rest, Token: origin}
		if result != "" {
			r.Result = []byte(result)
		}
		return r
	}
	type good map[string]Reply
	for _, c := range []struct {
		op   Op
		good good
		bad  []string
	}{
		{OpAcquire, good{
			"OK 5 9007199254740991 15 -":                       {Verdict: Granted, Clock: 5000, Token: 9007199254740991, Expiry: 15000, Memory: "-"},
			"OK 5:20000 1812345678901234 15 0123abcd.17":       {Verdict: Granted, Clock: 5000, Longest: 20 * time.Second, Token: 1812345678901234, Expiry: 15000, Memory: "0123abcd.17"},
			"OK 5 6 15 - 4 1000 3 ":                            {Verdict: Granted, Clock: 5000, Token: 6, Expiry: 15000, Memory: "-", Record: rec(4, 1000*ms, 3, "")},
			"OK 5 6 15 - 4 1000 3 a b\n\x00":                   {Verdict: Granted, Clock: 5000, Token: 6, Expiry: 15000, Memory: "-", Record: rec(4, 1000*ms, 3, "a b\n\x00")},
			"HELD 5 7000 abc-1 0":                              {Verdict: Held, Owner: "abc-1", Clock: 5000, Remaining: 7000 * ms},
			"RESERVED 5 50 2":                                  {Verdict: Reserved, Place: 2, Clock: 5000, Remaining: 50 * ms},
			"HELD 5 0 - 0":                                     {Verdict: Held, Owner: "-", Clock: 5000},
			"HELD 5 1 abc-1 3 \x00\x00\x0b00-trace-01":         {Verdict: Held, Place: 3, Owner: "abc-1", Hint: "00-trace-01", Clock: 5000, Remaining: ms},
			"QUARANTINED 5 7000":                               {Verdict: Quarantined, Clock: 5000, Remaining: 7000 * ms},
			"QUARANTINED 5:1 7000 4 1000 3 x":                  {Verdict: Quarantined, Clock: 5000, Longest: ms, Remaining: 7000 * ms, Record: rec(4, 1000*ms, 3, "x")},
			"DONE 5 4 1000 3 ":                                 {Verdict: Done, Clock: 5000, Record: rec(4, 1000*ms, 3, "")},
			"DONE 5 4 1000 3  ":                                {Verdict: Done, Clock: 5000, Record: rec(4, 1000*ms, 3, " ")},
			"DONE 5 4 1000 3 12 34":                            {Verdict: Done, Clock: 5000, Record: rec(4, 1000*ms, 3, "12 34")},
			"TOMBSTONE 5":                                      {Verdict: Gone, Clock: 5000},
			"LOST 5":                                           {Verdict: Gone, Clock: 5000},
			"CLOCK 1795000000123456":                           {Verdict: ClockSkewed, Clock: 1795000000123456},
			"REPLICA 5":                                        {Verdict: Replica, Clock: 5000},
			"NOGUARD 5":                                        {Verdict: Unguarded, Clock: 5000},
			"HELD 5 7000 abc-1 0 " + strings.Repeat("x", 1000): {Verdict: Held, Owner: "abc-1", Clock: 5000, Remaining: 7000 * ms},
		}, []string{
			// A reply of another script, or of no script, is not a grant. Nor is a reply with token 0.
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
		{OpRenew, good{
			"OK 5 1795000000123 -":        {Verdict: Granted, Clock: 5000, Expiry: 1795000000123000, Memory: "-"},
			"HEALED 5 9 0123abcd.5":       {Verdict: Healed, Clock: 5000, Expiry: 9000, Memory: "0123abcd.5"},
			"PASSED 5:60000 9 0123abcd.5": {Verdict: Passed, Clock: 5000, Longest: time.Minute, Expiry: 9000, Memory: "0123abcd.5"},
			"WAIT 5":                      {Verdict: Unconfirmed, Clock: 5000},
			"LOST 1795000000123":          {Verdict: Gone, Clock: 1795000000123000},
			"TOMBSTONE 5":                 {Verdict: Gone, Clock: 5000},
			"QUARANTINED 5 7000":          {Verdict: Quarantined, Clock: 5000, Remaining: 7000 * ms},
			"CLOCK 1795000000123456":      {Verdict: ClockSkewed, Clock: 1795000000123456},
			"REPLICA 5":                   {Verdict: Replica, Clock: 5000},
			"NOGUARD 5":                   {Verdict: Unguarded, Clock: 5000},
		}, []string{"OK", "OK 5", "OK 5 9", "OK 5 4 -", "OK 5 6 15 -", "OK 1795000000000 1795000000000 ", "HEALED", "HEALED 5", "HEALED 0 0 0", "HEALED 5 9", "HEALED 5 9 - x",
			"AGAIN", "GONE", "WAIT x", "WAIT 5 9", "HELD 5 7 a 0", "DONE 5 4 1000 3 "}},
		{OpComplete, good{
			"OK 1795000000123":       {Verdict: Granted, Clock: 1795000000123000},
			"DONE 5 4 1000 3":        {Verdict: Done, Clock: 5000, Record: rec(4, 1000*ms, 3, "")},
			"LOST 5":                 {Verdict: Gone, Clock: 5000},
			"FORGOT 5":               {Verdict: Forgotten, Clock: 5000},
			"WAIT 5":                 {Verdict: Unconfirmed, Clock: 5000},
			"REVOKED 5":              {Verdict: Gone, Clock: 5000, Revoked: true},
			"CLOCK 1795000000123456": {Verdict: ClockSkewed, Clock: 1795000000123456},
			"REPLICA 5":              {Verdict: Replica, Clock: 5000},
			"NOGUARD 5":              {Verdict: Unguarded, Clock: 5000},
		}, []string{"OK", "OK 0", "OK 5 6", "AGAIN", "GONE", "TOMBSTONE 5", "QUARANTINED 5 6", "DONE 5 4 1000"}},
		{OpRelease, good{
			"OK": {Verdict: Granted}, "AGAIN": {Verdict: Granted}, "GONE": {Verdict: Gone}, "REFUSED": {Verdict: Gone, Refused: true}, "REVOKED": {Verdict: Gone, Revoked: true},
		}, []string{"OK 5", "LOST 5", "gone", "GONE 5", "REFUSED 5", "REVOKED 5"}},
		{OpRevoke, good{"ENDED 7000": {Verdict: Granted, Remaining: 7000 * ms}, "GONE": {Verdict: Gone}}, []string{"ENDED", "ENDED 5 6", "OK"}},
		{OpForget, good{"OK": {Verdict: Granted}, "NONE": {Verdict: Gone}, "OTHER": {Verdict: Done}}, []string{"OK 5", "GONE"}},
		{OpLower, good{
			"MARKED 5:20000 >10000@7000": {Verdict: Granted, Clock: 5000, Longest: 20 * time.Second, Claim: ">10000@7000"},
			"OK 5":                       {Verdict: Granted, Clock: 5000}, "GONE 5": {Verdict: Gone, Clock: 5000},
			"QUARANTINED 5 7000": {Verdict: Quarantined, Clock: 5000, Remaining: 7000 * ms},
			"REPLICA 5":          {Verdict: Replica, Clock: 5000}, "NOGUARD 5": {Verdict: Unguarded, Clock: 5000},
		}, []string{"OK", "OK 5 >1@2", "MARKED", "MARKED 5", "MARKED 5 a b", "MARKED >1@2", "GONE", "QUARANTINED 5", "QUARANTINED 5 6 7", "NEW a", "LOWERED 5"}},
		{OpProvision, good{
			"OK 0123abcd.5": {Verdict: Granted, Memory: "0123abcd.5"}, "UNUSED 0123abcd.5 abc": {Verdict: Granted, Memory: "0123abcd.5", Claim: "abc"},
			"NEW abc":            {Verdict: Quarantined, Claim: "abc"},
			"QUARANTINED 5 7000": {Verdict: Quarantined, Clock: 5000, Remaining: 7000 * ms},
			"REPLICA 5":          {Verdict: Replica, Clock: 5000}, "NOGUARD 5": {Verdict: Unguarded, Clock: 5000},
		}, []string{"OK", "NEW", "NEW a b", "UNUSED", "UNUSED a", "UNUSED a b c", "OK a b", "REPLICA 0"}},
	} {
		for reply, want := range c.good {
			if got, err := requestOf(c.op).Decode(reply); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v: Decode(%q)\n got %+v, %v\nwant %+v", c.op, reply, got, err, want)
			}
		}
		for _, reply := range append(c.bad, "", " ", "ok", "PONG", "KNOWN", "OKAY 5", " OK", "failed", "NOSCRIPT x") {
			if got, err := requestOf(c.op).Decode(reply); err != ErrBadReply || !reflect.DeepEqual(got, Reply{}) {
				t.Errorf("%v: Decode(%q) is %+v, %v", c.op, reply, got, err)
			}
		}
	}
}

// said lists the replies that the heads of the .lua files promise: # is a number, @ the name of a memory. Decode must
// accept the replies that match, except for those with impossible numbers.
var said = map[Op]*regexp.Regexp{
	OpTouch: forms(`OK ~ @`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(REPLICA|NOGUARD) ~`, `CLOCK #`),
	OpAcquire: forms(`OK ~ # # @( # # # (?s:.*))?`, `HELD ~ # [^ ]+ #( (?s:.*))?`, `RESERVED ~ # #`, `DONE ~ # # # (?s:.*)`, `QUARANTINED ~ #( # # # (?s:.*))?`,
		`(TOMBSTONE|LOST|REPLICA|NOGUARD) ~`, `CLOCK #`),
	OpRenew:     forms(`(OK|HEALED|PASSED) ~ # @`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(WAIT|LOST|TOMBSTONE|REVOKED|REPLICA|NOGUARD) ~`, `CLOCK #`),
	OpComplete:  forms(`DONE ~ # # #`, `(OK|LOST|FORGOT|WAIT|REPLICA|NOGUARD) ~`, `CLOCK #`),
	OpRelease:   forms(`OK`, `AGAIN`, `GONE`, `REVOKED`),
	OpRevoke:    forms(`ENDED #`, `GONE`),
	OpForget:    forms(`OK`, `NONE`, `OTHER`),
	OpLower:     forms(`MARKED ~ [^ ]+`, `(OK|GONE|REPLICA|NOGUARD) ~`, `QUARANTINED ~ #`, `CLOCK #`),
	OpProvision: forms(`OK @`, `NEW [^ ]+`, `UNUSED @ [^ ]+`, `QUARANTINED ~ #( # # # (?s:.*))?`, `(REPLICA|NOGUARD) ~`, `CLOCK #`),
}

func forms(forms ...string) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer("#", "[0-9]+", "@", "[^ ]+", "~", "[0-9]+(:[0-9]+)?").Replace(`^(` + strings.Join(forms, "|") + `) ?$`))
}

// FuzzParse checks that Decode panics on no reply, and accepts only replies that the script can have sent.
func FuzzParse(f *testing.F) {
	for _, reply := range []string{"OK", "OK 5", "OK 5 6", "OK 5 6 15 -", "OK 5:9 6 15 0123abcd.1 4 1000 3 result \x00 1 2", "HELD 5 7 abc-1 0", "RESERVED 5 7 1",
		"QUARANTINED 5 6", "DONE 5 4 1000 3 ", "DONE 5 4 1000 3", "HEALED 5 9 -", "HEALED 0 0 0", "LOST 5", "CLOCK 5", "REPLICA", "AGAIN", "NOSCRIPT", "HELD 5", "OK x",
		"OK 5 9223372036854775807 15 -", "NEW claim"} {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		for op, form := range said {
			v, err := requestOf(op).Decode(reply)
			if err == nil {
				wantWellFormed(t, op, reply, v)
			} else if err != ErrBadReply || !reflect.DeepEqual(v, Reply{}) {
				t.Fatalf("%v: a malformed reply %q leaves %+v, %v", op, reply, v, err)
			}
			switch matches := form.MatchString(reply); {
			case err == nil && !matches:
				t.Fatalf("%v: %q is no reply of the script, got %+v", op, reply, v)
			case err != nil && matches && !oddNumbers(reply):
				t.Fatalf("%v: %q is a reply of the script, and was refused", op, reply)
			}
		}
	})
}

// requestOf returns a request for op. The request decodes replies to op.
func requestOf(op Op) Request { return Request{op: op} }

// wantWellFormed checks that the fields of a reply are in range.
func wantWellFormed(t *testing.T, op Op, reply string, v Reply) {
	if v.Token > maxNumber || v.Expiry > maxNumber || v.Remaining < 0 || v.Longest < 0 || v.Clock < 0 || v.Record != nil && v.Record.Retention < 0 {
		t.Fatalf("%v: %q: out of range: %+v", op, reply, v)
	}
	if v.Verdict == Granted && op == OpAcquire && (v.Token == 0 || v.Expiry < v.Clock/1000) {
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

// The first words of each script's replies are exactly those of its grammar.
func TestGrammarOfEveryScript(t *testing.T) {
	t.Parallel()
	said := map[Op]string{OpAcquire: sources("acquire", "head"), OpRenew: sources("renew", "head"), OpRelease: sources("release"), OpComplete: sources("complete", "head"),
		OpTouch: sources("touch", "head"), OpProvision: sources("provision", "node"), OpLower: sources("lower", "node"), OpRevoke: sources("revoke"), OpForget: sources("forget")}
	for op, source := range said {
		words := map[string]bool{}
		for _, m := range regexp.MustCompile(`'([A-Z]{2,}) ?'`).FindAllStringSubmatch(source, -1) {
			if word := m[1]; !redisCommands[word] {
				words[word] = true
			}
		}
		read := slices.Sorted(maps.Keys(grammars[op]))
		if got := slices.Sorted(maps.Keys(words)); !slices.Equal(got, read) {
			t.Errorf("%v: the script says %v, and what is read is %v", op, got, read)
		}
	}
}

var redisCommands = map[string]bool{"GET": true, "MGET": true, "NX": true, "DEL": true, "KEEPTTL": true, "LAYOUT": true, "TIME": true, "INFO": true, "EXISTS": true, "SET": true, "PX": true, "XX": true, "PEXPIRE": true,
	"ZADD": true, "ZCARD": true, "ZRANGE": true, "ZRANK": true, "ZREM": true, "ZREMRANGEBYRANK": true, "PUBLISH": true, "SPUBLISH": true, "PING": true}
