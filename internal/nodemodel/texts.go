package nodemodel

import (
	"strconv"
	"strings"
)

// forms lists the replies of the scripts: by operation and answer, the first word and the fields that follow. The answer
// is the verdict; "revoked" and "refused" if the reply says so; and it ends with " claim" if the reply has one. Where
// scripts have several words for an answer, the form has one of them.
var forms = map[Op]map[string]string{
	OpAcquire: {
		"granted": "OK now token expiry memory record", "held": "HELD now rest owner place carried",
		"reserved": "RESERVED now rest place", "done": "DONE now record", "gone": "LOST now",
		"quarantined": "QUARANTINED now rest record",
	},
	OpRenew: {
		"granted": "OK now expiry memory", "healed": "HEALED now expiry memory", "passed": "PASSED now expiry memory",
		"unconfirmed": "WAIT now", "gone": "LOST now", "revoked": "REVOKED now", "quarantined": "QUARANTINED now rest",
	},
	OpComplete: {
		"granted": "OK now", "done": "DONE now ballot", "gone": "LOST now", "revoked": "REVOKED now",
		"forgotten": "FORGOT now", "unconfirmed": "WAIT now",
	},
	OpTouch:   {"granted": "OK now memory", "quarantined": "QUARANTINED now rest"},
	OpRelease: {"granted": "OK", "gone": "GONE", "refused": "REFUSED", "revoked": "REVOKED", "too_late": "LATE"},
	OpRevoke:  {"granted": "ENDED rest", "gone": "GONE"},
	OpForget:  {"granted": "OK", "gone": "NONE", "done": "OTHER"},
	OpProvision: {
		"granted": "OK memory", "granted claim": "UNUSED memory claim", "quarantined claim": "NEW claim",
		"quarantined": "QUARANTINED now rest",
	},
	OpLower: {
		"granted": "OK now", "granted claim": "MARKED now claim", "gone": "GONE now", "quarantined": "QUARANTINED now rest",
	},
}

// checks lists the replies by which clock and guard refuse any request.
var checks = map[string]string{"clock_skewed": "CLOCK us", "replica": "REPLICA now", "unguarded": "NOGUARD now"}

// text returns the reply to a request as a script words it.
func (v Reply) text(op Op) string {
	answer := string(v.Verdict)
	if v.Revoked {
		answer = "revoked"
	}
	if v.Refused {
		answer = "refused"
	}
	if v.Claim != "" {
		answer += " claim"
	}

	form, isCheck := checks[answer]
	if !isCheck {
		form = forms[op][answer]
	}
	word, fields, _ := strings.Cut(form, " ")
	text := []byte(word)
	for field := range strings.FieldsSeq(fields) {
		text = v.appendField(text, field)
	}

	return string(text)
}

// appendField appends a field of the reply and the space before it. A record or texts of a holder that the reply lacks
// are left out.
func (v Reply) appendField(text []byte, field string) []byte {
	number := func(n int64) { text = strconv.AppendInt(append(text, ' '), n, 10) }
	word := func(s string) { text = append(append(text, ' '), s...) }

	switch field {
	case "us":
		number(v.Clock)
	case "now":
		number(v.Clock / 1000)
		if v.Longest > 0 {
			text = strconv.AppendInt(append(text, ':'), v.Longest, 10)
		}
	case "token":
		number(v.Token)
	case "expiry":
		number(v.Expiry)
	case "rest":
		number(v.Remaining)
	case "place":
		number(int64(v.Place))
	case "memory":
		word(v.Memory)
	case "owner":
		word(v.Owner)
	case "claim":
		word(v.Claim)
	case "carried":
		if v.Carried != "" {
			word(v.Carried)
		}
	case "ballot", "record":
		d := v.Record
		if d == nil {
			break
		}
		number(d.Ballot)
		number(d.Retention)
		number(d.Token)
		if field == "record" {
			word(d.Result)
		}
	}

	return text
}
