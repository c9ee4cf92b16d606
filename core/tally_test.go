package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// ballotOf is a vote in short: g granted, h held, d and e done under two ballots, q quarantined, x failed,
// o gone, l healed, . pending.
func ballotOf(symbol byte) vote {
	switch symbol {
	case 'g':
		return vote{Reply: wire.Reply{Verdict: wire.Granted, Token: 9, Memory: "-"}}
	case 'h':
		return vote{Reply: wire.Reply{Verdict: wire.Held, Rest: time.Second}}
	case 'd', 'e':
		ballot := uint64(symbol)
		return vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot, Token: 3}}}
	case 'q':
		return vote{Reply: wire.Reply{Verdict: wire.Quarantined, Rest: time.Minute}}
	case 'x':
		return vote{Reply: wire.Reply{Verdict: wire.TimedOut}}
	case 'o':
		return vote{Reply: wire.Reply{Verdict: wire.Gone}}
	case 'l':
		return vote{Reply: wire.Reply{Verdict: wire.Healed}}
	}
	return vote{Reply: wire.Reply{Verdict: wire.Pending}}
}

func tallyOf(ballots string) tally {
	t := newTally(nil, len(ballots), allNodes(len(ballots)))
	for i := range len(ballots) {
		if ballots[i] != '.' {
			t.take(i, ballotOf(ballots[i]))
		}
	}
	return t
}

func doneIn(t *tally) int { n, _ := t.doneVotes(); return n }

// outcomeOf is what attempt makes of a round that ended with these votes: the error, and whether it settles
// completion records next.
func outcomeOf(a *acquisition, t *tally) string {
	switch {
	case t.count(wire.Granted) >= t.q && t.record() == nil:
		return "won"
	case doneIn(t) >= t.q:
		return "done"
	}
	switch res := a.refused(t); {
	case res.recover:
		return "recover"
	case res.err == ErrHeld:
		return "held"
	default:
		return "unavailable"
	}
}

// bystander is an acquisition on n nodes that are never asked.
func bystander(n int) *acquisition {
	e := &engine{}
	for i := range n {
		e.nodes = append(e.nodes, &node{index: i})
	}
	return &acquisition{call: call{e: e, p: &policy{}}}
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
		// A node on which the attempt is over already would vote, too.
		{"goo", true, "held"}, {"oxx", true, "unavailable"}, {"oo.", true, "held"}, {"ogg", true, "won"},
		// An even number of nodes can split evenly: nobody has a quorum, and the key is taken.
		{"gghh", true, "held"}, {"ggh.", false, ""}, {"ghh.", true, "held"}, {"gghx", true, "held"}, {"ggxx", true, "unavailable"},
		{"gggh", true, "won"}, {"ggdd", true, "recover"}, {"ddee", true, "recover"}, {"ddd.", true, "done"},
		{"ggg..", true, "won"}, {"gghh.", false, ""}, {"gghhx", true, "held"}, {"hhh..", true, "held"}, {"ggxxx", true, "unavailable"},
		{"dde..", false, ""}, {"hhd..", false, ""}, {"hxx..", false, ""}, {"xxx..", true, "unavailable"}, {"hxxq.", true, "unavailable"},
	} {
		tally := tallyOf(c.ballots)
		if over := tally.acquireDecided(); over != c.over {
			t.Errorf("%s: over is %v", c.ballots, over)
		} else if got := outcomeOf(bystander(len(c.ballots)), &tally); over && got != c.outcome {
			t.Errorf("%s: %s, want %s", c.ballots, got, c.outcome)
		}
	}
}

// However many nodes, whatever they vote and in whichever order: once a round is over, no vote that is still
// to come could have changed its outcome; and when none is to come, it is over. A vote counts the same
// whenever it comes, so all orders are all sets of votes that are still pending.
func TestAcquiredIsFinal(t *testing.T) {
	t.Parallel()
	const symbols = "ghdeqxo"
	for n := 1; n <= 5; n++ {
		a := bystander(n)
		changed := map[string]int{}
		each(n, symbols+".", func(ballots string) {
			tally := tallyOf(ballots)
			if !tally.acquireDecided() {
				if tally.pending == 0 {
					t.Errorf("%s: all have voted, and the round is not over", ballots)
				}
				return
			}
			outcome := outcomeOf(a, &tally)
			each(tally.pending, symbols, func(rest string) {
				full := tallyOf(fill(ballots, rest))
				// A record that a straggler shows is not waited for.
				if later := outcomeOf(a, &full); later != outcome && !(outcome == "won" && later == "recover") {
					change := outcome + " becomes " + later
					if changed[change]++; changed[change] == 1 {
						t.Errorf("%s: %s with %s", ballots, change, rest)
					}
				}
			})
		})
	}
}

// A quorum that confirmed, and one that no longer can, are final too.
func TestSettledIsFinal(t *testing.T) {
	t.Parallel()
	const symbols = "glox"
	for n := 1; n <= 5; n++ {
		each(n, symbols+".", func(ballots string) {
			tally := tallyOf(ballots)
			confirmed, outvoted := tally.confirmed(), tally.outvoted()
			if tally.settled() != (confirmed || outvoted) || confirmed && outvoted {
				t.Errorf("%s: settled %v, confirmed %v, outvoted %v", ballots, tally.settled(), confirmed, outvoted)
			}
			possible := false // that a quorum confirms
			each(tally.pending, symbols, func(rest string) {
				full := tallyOf(fill(ballots, rest))
				possible = possible || full.confirmed()
				if confirmed && !full.confirmed() {
					t.Errorf("%s: confirmed, and not with %s", ballots, rest)
				}
			})
			if outvoted && possible {
				t.Errorf("%s: outvoted, and confirmed in the end", ballots)
			}
			if gone := tally.count(wire.Gone); gone+tally.pending == n && !possible && !outvoted {
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

// fill puts the votes of rest where ballots are pending.
func fill(ballots, rest string) string {
	full := []byte(ballots)
	for i := range full {
		if full[i] == '.' {
			full[i], rest = rest[0], rest[1:]
		}
	}
	return string(full)
}

// A round ends with the last vote, whatever its outcome; and a vote that comes later is not counted.
func TestRoundEndsWithTheLastVote(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		r := round{decided: func(*round) bool { return false }, tally: newTally(nil, n, allNodes(n))}
		for i := range n {
			if r.over {
				t.Fatalf("%d nodes: over after %d votes", n, i)
			}
			r.hear(i, ballotOf('x'))
		}
		if !r.over {
			t.Fatalf("%d nodes: not over after all votes", n)
		}
		r.hear(0, ballotOf('g'))
		if got := r.count(wire.Granted); got != 0 || r.pending != 0 {
			t.Errorf("%d nodes: a late vote counts: %d granted, %d pending", n, got, r.pending)
		}
	}
}

func TestTallyFindings(t *testing.T) {
	t.Parallel()
	granted := func(token uint64, memory string) vote {
		return vote{Reply: wire.Reply{Verdict: wire.Granted, Token: token, Memory: memory}}
	}
	done := func(ballot uint64) vote {
		return vote{Reply: wire.Reply{Verdict: wire.Done, Record: &wire.Record{Ballot: ballot}}}
	}
	waits := func(v wire.Verdict, s int) vote {
		return vote{Reply: wire.Reply{Verdict: v, Rest: time.Duration(s) * time.Second}}
	}
	failed, free := vote{Reply: wire.Reply{Verdict: wire.Failed}}, granted(5, "-")
	for _, c := range []struct {
		name  string
		votes []vote
		find  func(*tally) any
		want  any
	}{
		{"token: the greatest", []vote{granted(5, "-"), granted(7, "-"), granted(6, "-")}, tokenOf, "7 stored by 10"},
		{"token: stored by several", []vote{granted(7, "-"), failed, granted(7, "-"), granted(6, "-")}, tokenOf, "7 stored by 101"},
		{"token: a ballot is none", []vote{done(9), granted(6, "-")}, tokenOf, "6 stored by 10"},
		{"token: 16 digits", []vote{granted(1812345678901233, "-"), granted(1812345678901234, "-")}, tokenOf, "1812345678901234 stored by 10"},
		{"record: the greatest ballot", []vote{done(5), done(7), failed, done(6)}, func(t *tally) any { return t.record().Ballot }, uint64(7)},
		{"record: none", []vote{failed, granted(5, "-")}, func(t *tally) any { return t.record() == nil }, true},
		{"done: the most of one ballot", []vote{done(5), done(7), done(7), done(5), done(7)}, func(t *tally) any { n, rec := t.doneVotes(); return fmt.Sprint(n, " of ", rec.Ballot) }, "3 of 7"},
		{"done: a node in quarantine has accepted once", []vote{done(5), {Reply: wire.Reply{Verdict: wire.Quarantined, Record: &wire.Record{Ballot: 5}}}, failed},
			func(t *tally) any { n, rec := t.doneVotes(); return fmt.Sprint(n, " of ", rec.Ballot) }, "2 of 5"},
		{"done: ballots are not added up", []vote{done(5), done(6), failed}, func(t *tally) any { n, _ := t.doneVotes(); return n }, 1},
		{"lacking: all but those that hold the record", []vote{done(5), done(4), granted(5, "-"), waits(wire.Held, 1), failed, waits(wire.Quarantined, 1),
			{Reply: wire.Reply{Verdict: wire.Quarantined, Record: &wire.Record{Ballot: 5}}}, {Reply: wire.Reply{Verdict: wire.CircuitOpen}}, {Reply: wire.Reply{Verdict: wire.Pending}}},
			func(t *tally) any { return fmt.Sprintf("%b", t.lacking(&wire.Record{Ballot: 5})) }, "100111110"},
		{"same server", []vote{granted(5, "aa.1"), failed, granted(5, "aa.2")}, sameOf, "0 2 true"},
		{"not the same", []vote{granted(5, "aa"), granted(5, "bb"), {Reply: wire.Reply{Verdict: wire.Held, Memory: "aa"}}}, sameOf, "0 0 false"},
		{"not the same, unguarded", []vote{granted(5, "-"), granted(5, "-")}, sameOf, "0 0 false"},
		{"wait: second of three", []vote{waits(wire.Held, 3), waits(wire.Held, 1), waits(wire.Held, 2)}, waitOf, 2 * time.Second},
		{"wait: free nodes count", []vote{free, waits(wire.Held, 1), waits(wire.Held, 2)}, waitOf, time.Second},
		{"wait: quarantine counts", []vote{failed, waits(wire.Quarantined, 9), waits(wire.Held, 2)}, waitOf, 9 * time.Second},
		{"wait: unknown", []vote{failed, failed, waits(wire.Held, 2)}, waitOf, time.Duration(0)},
		{"wait: done nodes never grant", []vote{done(5), failed, waits(wire.Held, 2)}, waitOf, time.Duration(0)},
		{"may hold: all but those that refused, or were not asked", everyVerdict(), func(t *tally) any { return fmt.Sprintf("%b", t.mayHold()) }, "10000000000000111"},
		{"outvoted", []vote{{Reply: wire.Reply{Verdict: wire.Gone}}, failed, {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, true},
		{"outvoted: not by nodes that forgot", []vote{waits(wire.Quarantined, 9), waits(wire.Quarantined, 9), {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, false},
		{"outvoted: not by nodes promoted lately", []vote{{Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Gone}}}, outvotedOf, false},
		{"confirmed: not by nodes promoted lately", []vote{{Reply: wire.Reply{Verdict: wire.Unconfirmed}}, {Reply: wire.Reply{Verdict: wire.Unconfirmed}}, granted(5, "-")}, func(t *tally) any { return t.confirmed() }, false},
		{"slept", []vote{{slept: true}, {}, {slept: true}}, func(t *tally) any { return t.slept() }, 2},
	} {
		tally := newTally(nil, len(c.votes), allNodes(len(c.votes)))
		for i, v := range c.votes {
			tally.take(i, v)
		}
		if got := c.find(&tally); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func tokenOf(t *tally) any {
	token, stored := t.token()
	return fmt.Sprintf("%d stored by %b", token, stored)
}

func everyVerdict() (votes []vote) {
	for v := range verdictNames {
		votes = append(votes, vote{Reply: wire.Reply{Verdict: wire.Verdict(v)}})
	}
	return votes
}

func sameOf(t *tally) any     { return fmt.Sprint(t.sameServer()) }
func waitOf(t *tally) any     { return t.retryAfter() }
func outvotedOf(t *tally) any { return t.outvoted() }

// A completion that no quorum can accept waits for those who may tell that it is recorded already.
func TestRecordDecided(t *testing.T) {
	t.Parallel()
	for ballots, want := range map[string]bool{"...": false, "gg.": true, "go.": false, "oo.": true, "d..": false, "dd.": true, "do.": false,
		"doo": true, "de.": false, "ded": true, "deg": true, "doq": true, "qq.": false, "qqq": false} {
		if tally := tallyOf(ballots); tally.recordDecided() != want {
			t.Errorf("%s: decided %v", ballots, !want)
		}
	}
}

// Only nodes that were asked are waited for, and two majorities always share a node.
func TestQuorum(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxNodes; n++ {
		if q := quorum(n); 2*q <= n || q > n || 2*(q-1) > n {
			t.Errorf("quorum of %d is %d", n, q)
		}
		if all := allNodes(n); all.len() != n || !all.has(n-1) || n < maxNodes && all.has(n) {
			t.Errorf("%d nodes are %b", n, all)
		}
	}
	to := nodeSet(0).with(1).with(3)
	tally := newTally(nil, 5, to)
	if tally.pending != 2 || tally.unheard() != to {
		t.Errorf("two asked: %+v", tally)
	}
	tally.take(1, ballotOf('x'))
	tally.take(3, ballotOf('g'))
	if tally.pending != 0 || tally.unheard() != 0 || tally.count(wire.Granted) != 1 {
		t.Errorf("two answered: %+v", tally)
	}
}
