package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

// Why a key is a leak. It is the why field of the JSON.
const (
	leakEndless    = "no_expiry"  // of ours, and nothing will ever end it
	leakLong       = "long_lease" // a lease that lasts for longer than the max TTL in use
	leakForeign    = "foreign"    // under the prefix, and not lockkit's
	leakUnreadable = "unreadable" // in the place of a lock, and not written by this version of lockkit
)

var leakWords = map[string]string{
	leakEndless: "no expiry", leakLong: "lease beyond the max TTL", leakForeign: "not lockkit's", leakUnreadable: "unreadable",
}

func (a *app) leaks() *cli.Command {
	return &cli.Command{
		Name: "leaks", Usage: "what is on the nodes that nothing will ever end, or that is not lockkit's",
		Description: "Lists keys of lockkit's without expiry, leases that last for longer than the max TTL in use, and foreign keys under the prefix;\n" +
			"then how many locks, records, tombstones, queues and resting counters there are, and how much memory they take. Those end by\n" +
			"themselves. The guard record of a node has no expiry on purpose and is never listed: who deletes it takes the node's vote for\n" +
			"the max TTL. Exit status 1 says that something was listed.",
		Flags: []cli.Flag{&cli.IntFlag{Name: "limit", Value: 20, Usage: "list at most so many of each sort; all are counted"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() || cmd.Int("limit") < 0 {
				return usagef("leaks takes no arguments, and a --limit of 0 and more")
			}
			return a.with(ctx, cmd, a.look, func(ctx context.Context, f *fleet) error { return a.leaking(ctx, cmd, f) })
		},
	}
}

// leaksJSON is what leaks prints. Counts are of keys on nodes: a key on three nodes counts three times.
type leaksJSON struct {
	MaxTTLMS int64                `json:"max_ttl_ms,omitempty"` // in use, as far as known
	Leaks    []leakJSON           `json:"leaks"`                // at most --limit of each why
	Found    map[string]tallyJSON `json:"found"`                // by why: all leaks
	Stored   map[string]tallyJSON `json:"stored"`               // by sort: held, kept, records, counters, waiters, tombstones
	Silent   []nodeJSON           `json:"silent,omitempty"`     // nodes that were not read, or not to their end
}

type leakJSON struct {
	Why      string `json:"why"` // no_expiry, long_lease, foreign, unreadable
	Node     int    `json:"node"`
	Addr     string `json:"addr,omitempty"`
	RedisKey string `json:"redis_key"`
	Kind     string `json:"kind"` // lock, waiters, tombstone, probe, foreign
	Bytes    int64  `json:"bytes,omitempty"`
	TTLMS    int64  `json:"ttl_ms"` // -1 = none
	LeftMS   int64  `json:"left_ms,omitempty"`
}

type tallyJSON struct {
	Keys  int   `json:"keys"`
	Bytes int64 `json:"bytes"`
}

// A survey is what leaks found.
type survey struct {
	leaksJSON
	limit  int
	maxTTL time.Duration
	leases map[time.Duration]int // that are held, by the seconds that they have left: the max TTL is known at the end
	bytes  map[time.Duration]int64
	most   []core.Found // those that have the most left, as many as are listed
}

func (a *app) leaking(ctx context.Context, cmd *cli.Command, f *fleet) error {
	s := survey{limit: cmd.Int("limit"), maxTTL: cmd.Duration("max-ttl")}
	s.Leaks, s.Found, s.Stored = []leakJSON{}, map[string]tallyJSON{}, map[string]tallyJSON{}
	s.leases, s.bytes = map[time.Duration]int{}, map[time.Duration]int64{}
	silent := map[int]error{}
	for found, err := range f.Scan(ctx, "") {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isFinal(err):
			return err
		case err != nil:
			silent[found.Node] = err
		default:
			s.add(f, found)
			if found.State.Holder != nil {
				s.held(found)
			}
		}
	}
	if s.maxTTL > 0 {
		s.judge(f)
	}
	s.MaxTTLMS, s.Silent = s.maxTTL.Milliseconds(), f.silentJSON(silent)
	var err error
	switch {
	case asJSON(cmd):
		err = a.json(s.leaksJSON)
	case len(silent) < len(f.clients) || len(s.Stored)+len(s.Found) > 0: // a node may fall silent halfway
		a.printLeaks(&s)
	}
	if len(s.Found) > 0 {
		err = errors.Join(err, errFound)
	}
	return errors.Join(err, a.tellSilent(f, silent))
}

// held notes a lease. There may be more of them than are to be kept.
func (s *survey) held(found core.Found) {
	left := found.State.Rest.Truncate(time.Second)
	s.leases[left]++
	s.bytes[left] += found.Bytes
	at, _ := slices.BinarySearchFunc(s.most, found, func(a, b core.Found) int { return cmp.Compare(b.State.Rest, a.State.Rest) })
	if at < s.limit {
		s.most = slices.Insert(s.most, at, found)
		s.most = s.most[:min(len(s.most), s.limit)]
	}
}

// judge finds leases that last for longer than the max TTL. A step of the node's clock is no leak.
func (s *survey) judge(f *fleet) {
	long := func(left time.Duration) bool { return left.Truncate(time.Second) > s.maxTTL }
	for _, lease := range s.most {
		if long(lease.State.Rest) {
			s.list(f, leakLong, lease)
		}
	}
	t := tallyJSON{}
	for left, n := range s.leases {
		if long(left) {
			t = tallyJSON{t.Keys + n, t.Bytes + s.bytes[left]}
		}
	}
	if t.Keys > 0 {
		s.Found[leakLong] = t
	}
}

// add counts what was found.
func (s *survey) add(f *fleet, found core.Found) {
	s.maxTTL = max(s.maxTTL, found.MaxTTL)
	sort := ""
	switch found.Kind {
	case core.FoundGuard:
		return
	case core.FoundForeign:
		s.leak(f, leakForeign, found)
		return
	case core.FoundTombstone:
		sort = "tombstones"
	case core.FoundWaiters:
		sort = "waiters"
	case core.FoundProbe:
		sort = "probes"
	case core.FoundLock:
		switch state := &found.State; {
		case state.Err != nil:
			s.leak(f, leakUnreadable, found)
			return
		case state.Holder != nil:
			sort = "held"
		case state.Verdict == core.VerdictHeld:
			sort = "kept"
		case state.Record != nil:
			sort = "records"
		default:
			sort = "counters"
		}
	}
	t := s.Stored[sort]
	s.Stored[sort] = tallyJSON{t.Keys + 1, t.Bytes + found.Bytes}
	if found.TTL < 0 {
		s.leak(f, leakEndless, found)
	}
}

func (s *survey) leak(f *fleet, why string, found core.Found) {
	t := s.Found[why]
	s.Found[why] = tallyJSON{t.Keys + 1, t.Bytes + found.Bytes}
	if t.Keys < s.limit {
		s.list(f, why, found)
	}
}

func (s *survey) list(f *fleet, why string, found core.Found) {
	j := leakJSON{Why: why, Node: found.Node, Addr: f.addr(found.Node), RedisKey: found.RedisKey, Kind: string(found.Kind), Bytes: found.Bytes,
		TTLMS: found.TTL.Milliseconds(), LeftMS: found.State.Rest.Milliseconds()}
	if found.TTL < 0 {
		j.TTLMS = -1
	}
	s.Leaks = append(s.Leaks, j)
}

func (a *app) printLeaks(s *survey) {
	switch {
	case len(s.Found) == 0 && len(s.Silent) > 0:
		a.say("No leaks in what was read.")
	case len(s.Found) == 0:
		a.say("No leaks.")
	default:
		t := table{head: []string{"WHAT", "NODE", "ADDRESS", "KEY IN REDIS", "BYTES", "LEFT"}}
		for _, l := range s.Leaks {
			left := "-"
			if l.LeftMS > 0 {
				left = brief(time.Duration(l.LeftMS) * time.Millisecond)
			}
			t.add(leakWords[l.Why], strconv.Itoa(l.Node), l.Addr, plain(l.RedisKey), strconv.FormatInt(l.Bytes, 10), left)
		}
		a.table(t)
		a.say("")
		for _, why := range []string{leakEndless, leakLong, leakForeign, leakUnreadable} {
			if n := s.Found[why]; n.Keys > 0 {
				a.say("%s, %s: %s", plural(n.Keys, "key", "keys"), leakWords[why], leakAdvice[why])
			}
		}
	}
	a.say("")
	t := table{head: []string{"STORED ON ALL NODES", "KEYS", "BYTES"}}
	for _, sort := range storedSorts {
		n := s.Stored[sort.name]
		t.add(sort.words, strconv.Itoa(n.Keys), size(n.Bytes))
	}
	a.table(t)
	if s.maxTTL == 0 && len(s.leases) > 0 {
		a.say("")
		a.say("No node knows the max TTL in use (the restart guard is off), so leases were not judged: give --max-ttl.")
	}
}

var leakAdvice = map[string]string{
	leakEndless:    "somebody has taken their expiry away (PERSIST, RESTORE, a copy). Give it back, which harms no lock: PEXPIRE KEY 864000000 (ten days).",
	leakLong:       "a process uses a longer TTL than the nodes were told of, or a node's clock was set back. lockctl show says who; it ends by itself.",
	leakForeign:    "somebody else writes under the prefix, or other services use a prefix that begins with this one. Find out who before you delete anything.",
	leakUnreadable: "another version of lockkit, or somebody else, has written where a lock belongs. Nobody is granted that key on that node.",
}

var storedSorts = []struct{ name, words string }{
	{"held", "leases that are held"}, {"kept", "keys kept taken after their release"}, {"waiters", "queues of waiters"}, {"records", "completion records"},
	{"counters", "resting fencing counters"}, {"tombstones", "tombstones"},
}
