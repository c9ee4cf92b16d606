package quorum

import (
	"testing"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// voted returns a tally of the votes.
func voted(votes ...Vote) *Tally {
	t := New(nil, len(votes), All(len(votes)))
	for i, v := range votes {
		t.Add(i, v)
	}
	return &t
}

// Reasons that keep an attempt from the key are different outcomes if the call can do different things about them.
func TestAcquired(t *testing.T) {
	t.Parallel()
	granted, pending := NewVote(wire.Granted, nil), NewVote(wire.Pending, nil)
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
		"a record on one":                     {[]Vote{granted, done, NewVote(wire.Failed, nil)}, Unsettled},
		"a record on a quorum":                {[]Vote{done, done, held("a", 0)}, Done},
		"granted":                             {[]Vote{granted, granted, held("a", 0)}, Won},
		"too few vote yet":                    {[]Vote{granted, NewVote(wire.Quarantined, nil), NewVote(wire.Failed, nil)}, Quarantined},
		"too few can vote":                    {[]Vote{granted, NewVote(wire.Replica, nil), NewVote(wire.TimedOut, nil)}, OutOfReach},
		"a holder, whatever the others are":   {[]Vote{held("a", 0), held("a", 0), NewVote(wire.Quarantined, nil)}, Held},
		"one in quarantine, and one contends": {[]Vote{granted, held("a", 0), NewVote(wire.Quarantined, nil)}, Split},
	} {
		if got := voted(c.votes...).AcquireOutcome(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A lease operation is confirmed by a quorum, unless a quorum shows that this process's clock stopped. It is refused if
// so many nodes refuse it that no quorum is left. Otherwise it is inconclusive.
func TestFates(t *testing.T) {
	t.Parallel()
	granted, gone, failed := NewVote(wire.Granted, nil), NewVote(wire.Gone, nil), NewVote(wire.Failed, nil)
	healed, forgot := NewVote(wire.Healed, nil), NewVote(wire.Forgotten, nil)
	slept, revoked := granted, gone
	slept.ClockStopped, revoked.Revoked = true, true
	done := func(ballot, token uint64) Vote {
		return Vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot, Token: token}}}
	}
	const own = 7
	for name, c := range map[string]struct {
		votes                       []Vote
		renewed, released, recorded LeaseOutcome
	}{
		"confirmed":                    {[]Vote{granted, granted, failed}, Confirmed, Confirmed, Confirmed},
		"brought back":                 {[]Vote{granted, healed, failed}, Confirmed, Confirmed, Inconclusive},
		"others were there":            {[]Vote{granted, NewVote(wire.Passed, nil), failed}, Confirmed, Confirmed, Inconclusive},
		"stood still, says one":        {[]Vote{slept, granted, granted}, Confirmed, Confirmed, Confirmed},
		"stood still, says a quorum":   {[]Vote{slept, slept, granted}, ClockStopped, Confirmed, Confirmed},
		"too few answer":               {[]Vote{granted, failed, failed}, Inconclusive, Inconclusive, Inconclusive},
		"gone from one":                {[]Vote{granted, gone, failed}, Inconclusive, Inconclusive, Inconclusive},
		"gone from a quorum":           {[]Vote{granted, gone, gone}, Taken, Taken, Taken},
		"revoked, says a quorum":       {[]Vote{granted, gone, revoked}, Revoked, Revoked, Revoked},
		"revoked, says one":            {[]Vote{granted, granted, revoked}, Confirmed, Revoked, Confirmed},
		"revoked, forgotten":           {[]Vote{forgot, forgot, revoked}, Inconclusive, Revoked, Revoked},
		"revoked, and since recorded":  {[]Vote{done(9, 8), done(9, 8), revoked}, Inconclusive, Revoked, Revoked},
		"revoked, and it was settled":  {[]Vote{done(9, own), done(9, own), revoked}, Inconclusive, Revoked, Confirmed},
		"revoked, says one, no quorum": {[]Vote{failed, failed, revoked}, Inconclusive, Revoked, Inconclusive},
		"forgotten by a quorum":        {[]Vote{granted, forgot, forgot}, Inconclusive, Inconclusive, Forgotten},
		"forgotten by one, gone":       {[]Vote{granted, forgot, gone}, Inconclusive, Inconclusive, Forgotten},
		"recorded by somebody":         {[]Vote{done(9, 8), done(9, 8), failed}, Inconclusive, Inconclusive, Taken},
		"this record, settled":         {[]Vote{done(9, own), done(9, own), failed}, Inconclusive, Inconclusive, Confirmed},
		"this record, not yet settled": {[]Vote{done(9, own), granted, failed}, Inconclusive, Inconclusive, Inconclusive},
		"two others":                   {[]Vote{done(9, 8), gone, granted}, Inconclusive, Inconclusive, Taken},
	} {
		v := voted(c.votes...)
		if got := [...]LeaseOutcome{v.RenewOutcome(), v.ReleaseOutcome(), v.CompleteOutcome(own)}; got != [...]LeaseOutcome{c.renewed, c.released, c.recorded} {
			t.Errorf("%s: renewed, released and recorded are %v, want %v", name, got, [...]LeaseOutcome{c.renewed, c.released, c.recorded})
		}
	}
}
