package core

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Each path of each script makes only these calls on a real server. Redis spends most of a script's time in them, and
// all other locks on the node wait meanwhile, so no call may be added unnoticed.
func TestCallsOfScripts(t *testing.T) { //nolint:tparallel // its cases share a server
	t.Parallel()
	server := testutil.NewServers(t, 1)[0]
	const own = "! set e=T+60s i=a f=7"
	const guardKnown = "! guard h=live s=0 m=10s"

	for i, c := range []struct {
		path    string
		opts    []Option
		prepare string
		step    string
		calls   string // sorted
	}{
		{"acquire granted", nil, "", "a acquire -> granted token=wall expiry=now+10s", "exists get set time"},
		{"acquire granted, guarded", conformGuarded, guardKnown, "a acquire -> granted token=wall expiry=now+10s", "exists get get info set time"},
		{"acquire granted, with what the holder carries", nil, "", "a acquire carry=text -> granted token=wall expiry=now+10s", "exists get set time"},
		{"acquire held", nil, own, "b acquire -> held rest=T+60s+1-now", "get get time"},
		{"acquire held, guarded", conformGuarded, guardKnown + "\n" + own, "b acquire -> held rest=T+60s+1-now", "get get get info time"},
		{"acquire done", nil, "! set f=7 ballot=7 kept=T+60s origin=7", "a acquire -> done ballot=7 kept=T+60s-now origin=7", "get get time"},
		{"acquire outside the clock window", conformGuarded, guardKnown, "a acquire wall=5 -> clock_skewed", "info time"},
		{"acquire, first contact", conformGuarded, "", "a acquire -> quarantined rest=10s", "get get get info set time"},
		{"acquire in quarantine", conformGuarded, "! guard h=live s=T+60s-10s m=10s", "a acquire -> quarantined rest=T+60s-now", "get get get info time"},
		{"renew own", nil, own, "a renew token=7 confirmed=T+60s -> granted expiry=T+60s", "get get set time"},
		{"renew own, guarded", conformGuarded, guardKnown + "\n" + own, "a renew token=7 confirmed=T+60s -> granted expiry=T+60s", "get get get get info info set time"},
		{"renew, healing", nil, "", "a renew token=7 confirmed=T+60s -> healed expiry=now+10s", "get get get set time"},
		{"renew, lost", nil, own, "b renew token=7 confirmed=0 -> gone", "get get get set time"},
		{"release own", conformGuarded, own, "a release -> granted", "get set set"},
		{"release own, with a cooldown", nil, own, "a release cooldown=5s -> granted", "get set set time"},
		{"release another's", nil, own, "b release -> gone", "get get set"},
		{"complete own", nil, own, "a complete ballot=7 origin=7 -> granted", "get set set time"},
		{"complete own, guarded", conformGuarded, guardKnown + "\n" + own, "a complete ballot=7 origin=7 -> granted", "get get info set set time"},
		{"complete, lost", nil, own, "b complete ballot=7 origin=7 -> gone", "get get set time"},
		{"provision", conformGuarded, "", "p provision -> quarantined claim=fresh", "get info set time"},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := &scene{client: server.Client()}
			s.open(t, "calls-"+strconv.Itoa(i)+":", append(slices.Clip(c.opts), withNodeTimeout(time.Hour)))
			s.play(c.prepare)
			s.client.Eval(t.Context(), "return 'OK'", nil) // makes a connection, whose commands must not be counted
			s.count = func() map[string]int { return commandCounts(t, s) }
			s.play(c.step)
			if s.calls != c.calls {
				t.Errorf("calls: %s\n want: %s", s.calls, c.calls)
			}
		})
	}
}

var commandStat = regexp.MustCompile(`cmdstat_([\w|]+):calls=(\d+)`)

// commandCounts returns how often the server has executed each command.
func commandCounts(t *testing.T, s *scene) map[string]int {
	counts := map[string]int{}
	for _, m := range commandStat.FindAllStringSubmatch(must(s.client.Info(t.Context(), "commandstats").Result()), -1) {
		counts[m[1]] = must(strconv.Atoi(m[2]))
	}
	return counts
}

// callsBetween lists the commands that ran between two counts, without the script itself.
func callsBetween(before, after map[string]int) string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		n := after[name] - before[name]
		switch name {
		case "evalsha", "eval":
			n = 0
		case "info":
			n-- // made by the first count
		}
		for range n {
			calls = append(calls, name)
		}
	}
	return strings.Join(calls, " ")
}
