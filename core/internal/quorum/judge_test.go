package quorum

import (
	"testing"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// voted is a tally of so many votes of each kind.
func voted(votes ...Vote) *Tally {
	t := New(nil, len(votes), All(len(votes)))
	for i, v := range votes {
		t.Take(i, v)
	}
	return &t
}

// What keeps an attempt from the key is told apart by what the call can do about it.
func TestAcquired(t *testing.T) {
	t.Parallel()
	granted, pending := Said(wire.Granted, nil), Said(wire.Pending, nil)
	held := func(owner string, place int) Vote {
		return Vote{Reply: wire.Reply{Verdict: wire.Held, Owner: owner, Place: place}}
	}
	done := Vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: 1}}}
	for name, c := range map[string]struct {
		votes []Vote
		want  Outcome
	}{
		"a holder":                            {[]Vote{held("a", 0), held("a", 0), pending}, Held},
		"a holder, in its queue":              {[]Vote{held("a", 1), held("a", 1), pending}, Queued},
		"in the queue of one":                 {[]Vote{held("a", 1), held("a", 0), held("a", 0)}, Held},
		"two contenders":                      {[]Vote{granted, held("a", 0), held("b", 0)}, Split},
		"two contenders whose turn it is":     {[]Vote{granted, held("a", 1), held("b", 1)}, SharedTurn},
		"two others whose turn it is":         {[]Vote{held("c", 1), held("a", 1), held("b", 1)}, Queued},
		"a record on one":                     {[]Vote{granted, done, Said(wire.Failed, nil)}, Unsettled},
		"a record on a quorum":                {[]Vote{done, done, held("a", 0)}, Done},
		"granted":                             {[]Vote{granted, granted, held("a", 0)}, Won},
		"too few vote yet":                    {[]Vote{granted, Said(wire.Quarantined, nil), Said(wire.Failed, nil)}, Quarantined},
		"too few can vote":                    {[]Vote{granted, Said(wire.Replica, nil), Said(wire.TimedOut, nil)}, OutOfReach},
		"a holder, whatever the others are":   {[]Vote{held("a", 0), held("a", 0), Said(wire.Quarantined, nil)}, Held},
		"one in quarantine, and one contends": {[]Vote{granted, held("a", 0), Said(wire.Quarantined, nil)}, Split},
	} {
		if got := voted(c.votes...).Acquired(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// What becomes of a lease: a confirmation by a quorum, unless time stood still here; a refusal by so many that no quorum is
// left; and nothing else.
func TestFates(t *testing.T) {
	t.Parallel()
	granted, gone, failed := Said(wire.Granted, nil), Said(wire.Gone, nil), Said(wire.Failed, nil)
	healed, forgot := Said(wire.Healed, nil), Said(wire.Forgotten, nil)
	slept, revoked := granted, gone
	slept.Slept, revoked.Revoked = true, true
	done := func(ballot, token uint64) Vote {
		return Vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot, Token: token}}}
	}
	const own = 7
	for name, c := range map[string]struct {
		votes                       []Vote
		renewed, released, recorded Fate
	}{
		"confirmed":                    {[]Vote{granted, granted, failed}, Confirmed, Confirmed, Confirmed},
		"brought back":                 {[]Vote{granted, healed, failed}, Confirmed, Confirmed, Undecided},
		"others were there":            {[]Vote{granted, Said(wire.Passed, nil), failed}, Confirmed, Confirmed, Undecided},
		"stood still, says one":        {[]Vote{slept, granted, granted}, Confirmed, Confirmed, Confirmed},
		"stood still, says a quorum":   {[]Vote{slept, slept, granted}, Slept, Confirmed, Confirmed},
		"too few answer":               {[]Vote{granted, failed, failed}, Undecided, Undecided, Undecided},
		"gone from one":                {[]Vote{granted, gone, failed}, Undecided, Undecided, Undecided},
		"gone from a quorum":           {[]Vote{granted, gone, gone}, Taken, Taken, Taken},
		"revoked, says a quorum":       {[]Vote{granted, gone, revoked}, Revoked, Revoked, Revoked},
		"revoked, says one":            {[]Vote{granted, granted, revoked}, Confirmed, Revoked, Confirmed},
		"revoked, forgotten":           {[]Vote{forgot, forgot, revoked}, Undecided, Revoked, Revoked},
		"revoked, and since recorded":  {[]Vote{done(9, 8), done(9, 8), revoked}, Undecided, Revoked, Revoked},
		"revoked, and it was settled":  {[]Vote{done(9, own), done(9, own), revoked}, Undecided, Revoked, Confirmed},
		"revoked, says one, no quorum": {[]Vote{failed, failed, revoked}, Undecided, Revoked, Undecided},
		"forgotten by a quorum":        {[]Vote{granted, forgot, forgot}, Undecided, Undecided, Forgotten},
		"forgotten by one, gone":       {[]Vote{granted, forgot, gone}, Undecided, Undecided, Forgotten},
		"recorded by somebody":         {[]Vote{done(9, 8), done(9, 8), failed}, Undecided, Undecided, Taken},
		"this record, settled":         {[]Vote{done(9, own), done(9, own), failed}, Undecided, Undecided, Confirmed},
		"this record, not yet settled": {[]Vote{done(9, own), granted, failed}, Undecided, Undecided, Undecided},
		"two others":                   {[]Vote{done(9, 8), gone, granted}, Undecided, Undecided, Taken},
	} {
		v := voted(c.votes...)
		if got := [...]Fate{v.Renewed(), v.Released(), v.Recorded(own)}; got != [...]Fate{c.renewed, c.released, c.recorded} {
			t.Errorf("%s: renewed, released and recorded are %v, want %v", name, got, [...]Fate{c.renewed, c.released, c.recorded})
		}
	}
}
