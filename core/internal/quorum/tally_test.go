package quorum

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// ballotOf returns the vote for a symbol: g granted, h held, d and e done under two ballots, q quarantined, x failed, o
// gone, l healed, . pending.
func ballotOf(symbol byte) Vote {
	switch symbol {
	case 'g':
		return Vote{Reply: wire.Reply{Verdict: wire.Granted, Token: 9, Memory: "-"}}
	case 'h':
		return Vote{Reply: wire.Reply{Verdict: wire.Held, Remaining: time.Second}}
	case 'd', 'e':
		ballot := uint64(symbol)
		return Vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot, Token: 3}}}
	case 'q':
		return Vote{Reply: wire.Reply{Verdict: wire.Quarantined, Remaining: time.Minute}}
	case 'x':
		return Vote{Reply: wire.Reply{Verdict: wire.TimedOut}}
	case 'o':
		return Vote{Reply: wire.Reply{Verdict: wire.Gone}}
	case 'l':
		return Vote{Reply: wire.Reply{Verdict: wire.Healed}}
	}
	return Vote{Reply: wire.Reply{Verdict: wire.Pending}}
}

func tallyOf(ballots string) Tally {
	t := New(nil, len(ballots), All(len(ballots)))
	for i := range len(ballots) {
		if ballots[i] != '.' {
			t.Add(i, ballotOf(ballots[i]))
		}
	}
	return t
}

func doneIn(t *Tally) int { n, _ := t.CountDone(); return n }

// outcomeOf names the outcome of an acquisition whose round ended with these votes.
func outcomeOf(t *Tally) string {
	switch t.AcquireOutcome() {
	case Won:
		return "won"
	case Done:
		return "done"
	case Unsettled:
		return "recover"
	case Held, Queued, SharedTurn, Split:
		return "held"
	}
	return "unavailable"
}

func TestAcquiredTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ballots string
		over    bool
		outcome string // when over
	}{
		{".", false, ""}, {"g", true, "won"}, {"h", true, "held"}, {"d", true, "done"}, {"x", true, "unavailable"}, {"q", true, "unavailable"},
		{"g.", false, ""}, {"gg", true, "won"}, {"gh", true, "held"}, {"g.", false, ""}, {"h.", false, ""}, {"x.", true, "unavailable"},
		{"gd", true, "recover"}, {"de", true, "recover"}, {"dd", true, "done"},
		{"gg.", true, "won"}, {"g..", false, ""}, {"gh.", false, ""}, {"hh.", true, "held"}, {"ghh", true, "held"}, {"ghx", true, "held"},
		{"gd.", false, ""}, {"gdh", true, "recover"}, {"gdx", true, "recover"}, {"ddx", true, "done"}, {"dex", true, "recover"}, {"dd.", true, "done"},
		{"xx.", true, "unavailable"}, {"xq.", true, "unavailable"}, {"gqq", true, "unavailable"}, {"hxq", true, "unavailable"}, {"x..", false, ""},
		// A node on which the attempt is over already counts as a node that can vote.
		{"goo", true, "held"}, {"oxx", true, "unavailable"}, {"oo.", true, "held"}, {"ogg", true, "won"},
		// An even number of nodes can split evenly. Then no attempt has a quorum, and the key counts as held.
		{"gghh", true, "held"}, {"ggh.", false, ""}, {"ghh.", true, "held"}, {"gghx", true, "held"}, {"ggxx", true, "unavailable"},
		{"gggh", true, "won"}, {"ggdd", true, "recover"}, {"ddee", true, "recover"}, {"ddd.", true, "done"},
		{"ggg..", true, "won"}, {"gghh.", false, ""}, {"gghhx", true, "held"}, {"hhh..", true, "held"}, {"ggxxx", true, "unavailable"},
		{"dde..", false, ""}, {"hhd..", false, ""}, {"hxx..", false, ""}, {"xxx..", true, "unavailable"}, {"hxxq.", true, "unavailable"},
	} {
		tally := tallyOf(c.ballots)
		if over := tally.AcquireDecided(); over != c.over {
			t.Errorf("%s: over is %v", c.ballots, over)
		} else if got := outcomeOf(&tally); over && got != c.outcome {
			t.Errorf("%s: %s, want %s", c.ballots, got, c.outcome)
		}
	}
}

// Once a round is decided, no vote that is still to come could have changed its outcome. A round with all votes is
// decided. This is tried for one to five nodes and all votes. A vote counts the same whenever it comes, so all sets of
// pending votes cover all orders.
func TestAcquiredIsFinal(t *testing.T) {
	t.Parallel()
	const symbols = "ghdeqxo"
	for n := 1; n <= 5; n++ {
		changed := map[string]int{}
		each(n, symbols+".", func(ballots string) {
			tally := tallyOf(ballots)
			if !tally.AcquireDecided() {
				if tally.Pending == 0 {
					t.Errorf("%s: all have voted, and the round is not over", ballots)
				}
				return
			}
			outcome := outcomeOf(&tally)
			each(tally.Pending, symbols, func(rest string) {
				full := tallyOf(fill(ballots, rest))
				// A round that has won does not wait for the record on a straggler.
				if later := outcomeOf(&full); later != outcome && !(outcome == "won" && later == "recover") {
					change := outcome + " becomes " + later
					if changed[change]++; changed[change] == 1 {
						t.Errorf("%s: %s with %s", ballots, change, rest)
					}
				}
			})
		})
	}
}

// A confirmation by a quorum is final, and so is the finding that no quorum can confirm any more.
func TestSettledIsFinal(t *testing.T) {
	t.Parallel()
	const symbols = "glox"
	for n := 1; n <= 5; n++ {
		each(n, symbols+".", func(ballots string) {
			tally := tallyOf(ballots)
			confirmed, outvoted := tally.Confirmed(), tally.Outvoted()
			if tally.LeaseDecided() != (confirmed || outvoted) || confirmed && outvoted {
				t.Errorf("%s: settled %v, confirmed %v, outvoted %v", ballots, tally.LeaseDecided(), confirmed, outvoted)
			}
			possible := false // a quorum can still confirm
			each(tally.Pending, symbols, func(rest string) {
				full := tallyOf(fill(ballots, rest))
				possible = possible || full.Confirmed()
				if confirmed && !full.Confirmed() {
					t.Errorf("%s: confirmed, and not with %s", ballots, rest)
				}
			})
			if outvoted && possible {
				t.Errorf("%s: outvoted, and confirmed in the end", ballots)
			}
			if gone := tally.Count(wire.Gone); gone+tally.Pending == n && !possible && !outvoted {
				t.Errorf("%s: no quorum can confirm, which is not seen", ballots)
			}
		})
	}
}

// each calls f with every word of n symbols.
func each(n int, symbols string, f func(word string)) {
	word := make([]byte, n)
	var grow func(int)
	grow = func(i int) {
		if i == n {
			f(string(word))
			return
		}
		for _, word[i] = range []byte(symbols) {
			grow(i + 1)
		}
	}
	grow(0)
}

// fill replaces the pending ballots with the votes of rest.
func fill(ballots, rest string) string {
	full := []byte(ballots)
	for i := range full {
		if full[i] == '.' {
			full[i], rest = rest[0], rest[1:]
		}
	}
	return string(full)
}

func TestTallyFindings(t *testing.T) {
	t.Parallel()
	granted := func(token uint64, memory string) Vote {
		return Vote{Reply: wire.Reply{Verdict: wire.Granted, Token: token, Memory: memory}}
	}
	done := func(ballot uint64) Vote {
		return Vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot}}}
	}
	waits := func(v wire.Verdict, s int) Vote {
		return Vote{Reply: wire.Reply{Verdict: v, Remaining: time.Duration(s) * time.Second}}
	}
	failed, free := Vote{Reply: wire.Reply{Verdict: wire.Failed}}, granted(5, "-")
	for _, c := range []struct {
		name  string
		votes []Vote
		find  func(*Tally) any
		want  any
	}{
		{"token: the greatest", []Vote{granted(5, "-"), granted(7, "-"), granted(6, "-")}, tokenOf, "7 stored by 10"},
		{"token: stored by several", []Vote{granted(7, "-"), failed, granted(7, "-"), granted(6, "-")}, tokenOf, "7 stored by 101"},
		{"token: a ballot is none", []Vote{done(9), granted(6, "-")}, tokenOf, "6 stored by 10"},
		{"token: 16 digits", []Vote{granted(1812345678901233, "-"), granted(1812345678901234, "-")}, tokenOf, "1812345678901234 stored by 10"},
		{"record: the greatest ballot", []Vote{done(5), done(7), failed, done(6)}, func(t *Tally) any { return t.Record().Ballot }, uint64(7)},
		{"record: none", []Vote{failed, granted(5, "-")}, func(t *Tally) any { return t.Record() == nil }, true},
		{"done: the most of one ballot", []Vote{done(5), done(7), done(7), done(5), done(7)}, func(t *Tally) any { n, rec := t.CountDone(); return fmt.Sprint(n, " of ", rec.Ballot) }, "3 of 7"},
		{"done: a node in quarantine has accepted once", []Vote{done(5), {Reply: wire.Reply{Verdict: wire.Quarantined, Record: &wire.Record{Ballot: 5}}}, failed},
			func(t *Tally) any { n, rec := t.CountDone(); return fmt.Sprint(n, " of ", rec.Ballot) }, "2 of 5"},
		{"done: ballots are not added up", []Vote{done(5), done(6), failed}, func(t *Tally) any { n, _ := t.CountDone(); return n }, 1},
		{"lacking: all but those that hold the record", []Vote{done(5), done(4), granted(5, "-"), waits(wire.Held, 1), failed, waits(wire.Quarantined, 1),
			{Reply: wire.Reply{Verdict: wire.Quarantined, Record: &wire.Record{Ballot: 5}}}, {Reply: wire.Reply{Verdict: wire.CircuitOpen}}, {Reply: wire.Reply{Verdict: wire.Pending}}},
			func(t *Tally) any { return fmt.Sprintf("%b", t.Lacking(&wire.Record{Ballot: 5})) }, "100111110"},
		{"same server", []Vote{granted(5, "aa.1"), failed, granted(5, "aa.2")}, sameOf, "0 2 true"},
		{"not the same", []Vote{granted(5, "aa"), granted(5, "bb"), {Reply: wire.Reply{Verdict: wire.Held, Memory: "aa"}}}, sameOf, "0 0 false"},
		{"not the same, unguarded", []Vote{granted(5, "-"), granted(5, "-")}, sameOf, "0 0 false"},
		{"wait: second of three", []Vote{waits(wire.Held, 3), waits(wire.Held, 1), waits(wire.Held, 2)}, waitOf, 2 * time.Second},
		{"wait: free nodes count", []Vote{free, waits(wire.Held, 1), waits(wire.Held, 2)}, waitOf, time.Second},
		{"wait: quarantine counts", []Vote{failed, waits(wire.Quarantined, 9), waits(wire.Held, 2)}, waitOf, 9 * time.Second},
		{"wait: unknown", []Vote{failed, failed, waits(wire.Held, 2)}, waitOf, time.Duration(0)},
		{"wait: done nodes never grant", []Vote{done(5), failed, waits(wire.Held, 2)}, waitOf, time.Duration(0)},
		{"may hold: all but those that refused for another reason than lateness, or were not asked", everyVerdict(), func(t *Tally) any { return fmt.Sprintf("%b", t.MayHold()) }, "10010000000000111"},
		{"outvoted", []Vote{{Reply: wire.Reply{Verdict: wire.Gone}}, failed, {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, true},
		{"outvoted: not by nodes that forgot", []Vote{waits(wire.Quarantined, 9), waits(wire.Quarantined, 9), {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, false},
		{"outvoted: not by nodes promoted lately", []Vote{{Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, false},
		{"confirmed: not by nodes promoted lately", []Vote{{Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Unconfirmed}}, granted(5, "-")}, func(t *Tally) any { return t.Confirmed() }, false},
		{"slept", []Vote{{ClockStopped: true}, {}, {ClockStopped: true}}, func(t *Tally) any { return t.CountClockStopped() }, 2},
	} {
		tally := New(nil, len(c.votes), All(len(c.votes)))
		for i, v := range c.votes {
			tally.Add(i, v)
		}
		if got := c.find(&tally); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func tokenOf(t *Tally) any {
	token, stored := t.Token()
	return fmt.Sprintf("%d stored by %b", token, stored)
}

func everyVerdict() (votes []Vote) {
	for v := range wire.CircuitOpen + 1 {
		votes = append(votes, Vote{Reply: wire.Reply{Verdict: v}})
	}
	return votes
}

func sameOf(t *Tally) any     { return fmt.Sprint(t.SameServer()) }
func waitOf(t *Tally) any     { return t.RetryAfter() }
func outvotedOf(t *Tally) any { return t.Outvoted() }

// A completion that no quorum can accept waits for nodes that may report that it is recorded already.
func TestRecordDecided(t *testing.T) {
	t.Parallel()
	for ballots, want := range map[string]bool{"...": false, "gg.": true, "go.": false, "oo.": true, "d..": false, "dd.": true, "do.": false,
		"doo": true, "de.": false, "ded": true, "deg": true, "doq": true, "qq.": false, "qqq": false} {
		if tally := tallyOf(ballots); tally.RecordDecided() != want {
			t.Errorf("%s: decided %v", ballots, !want)
		}
	}
}

// A tally waits only for nodes that were asked. Two quorums always share a node.
func TestQuorum(t *testing.T) {
	t.Parallel()
	for n := 1; n <= MaxNodes; n++ {
		if q := Of(n); 2*q <= n || q > n || 2*(q-1) > n {
			t.Errorf("quorum of %d is %d", n, q)
		}
		if all := All(n); all.Len() != n || !all.Has(n-1) || n < MaxNodes && all.Has(n) {
			t.Errorf("%d nodes are %b", n, all)
		}
	}
	to := Set(0).With(1).With(3)
	tally := New(nil, 5, to)
	if tally.Pending != 2 || tally.Unanswered() != to {
		t.Errorf("two asked: %+v", tally)
	}
	tally.Add(1, ballotOf('x'))
	tally.Add(3, ballotOf('g'))
	if tally.Pending != 0 || tally.Unanswered() != 0 || tally.Count(wire.Granted) != 1 {
		t.Errorf("two answered: %+v", tally)
	}
}
