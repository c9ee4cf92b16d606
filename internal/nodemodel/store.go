package nodemodel

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockkit/lockkit/testutil"
)

// A store reads the state of a node from the keys of one bucket, and writes it there, in the form in which the scripts
// store it.
type store struct {
	db  *miniredis.RedisDB
	tag string
	µs  int64 // now
}

// The names of the keys.
func (s store) guard() string                   { return s.tag + "g" }
func (s store) note() string                    { return s.tag + "m" }
func (s store) resource(key string) string      { return s.tag + "r:" + key }
func (s store) queue(key string) string         { return s.tag + "w:" + key }
func (s store) tombstone(attempt string) string { return s.tag + "x:" + attempt }

// maxWaits is the greatest length of a queue that the model knows. A script bounds it.
const maxWaits = 1000

// load reads the guard, the note and the keys that a command names. It returns false if a stored text has an unknown form.
func (s store) load(c Command) (n Node, ok bool) {
	if c.Guarded {
		text, _, ok := s.text(s.guard())
		n.Guard = parseGuard(text)
		isKnown := ok && n.Guard.String() == text
		if !isKnown {
			return n, false
		}
	}

	n.Keys = map[string]Key{}
	for _, q := range c.Requests {
		if q.Key == "" {
			continue
		}

		k, loaded := n.Keys[q.Key]
		if !loaded {
			k, ok = s.loadKey(q.Key)
			if !ok {
				return n, false
			}
		}
		how, dies, ok := s.text(s.tombstone(q.Attempt))
		if !ok {
			return n, false
		}
		if how != "" {
			k.Ends[q.Attempt] = End{how, dies}
		}
		n.Keys[q.Key] = k
	}

	return n, true
}

// loadKey reads a key, without its tombstones.
func (s store) loadKey(key string) (k Key, ok bool) {
	text, dies, ok := s.text(s.resource(key))
	r, err := testutil.ParseResource(text)
	if !ok || err != nil {
		return k, false
	}

	k = Key{
		Owner: r.Owner, Expiry: r.Expiry, Counter: r.Counter, Before: r.Before, Carried: r.Metadata,
		Turn: r.Next, TurnUntil: r.TurnUntil, Marked: r.MayHaveWaiter, HoldEnded: r.Ended,
		Ends: map[string]End{}, Dies: dies,
	}
	d := r.Record
	if d != nil {
		k.Record = &Record{d.Ballot, d.KeptUntil, d.Origin, d.Result}
	}

	queue := s.queue(key)
	if s.db.Exists(queue) {
		waits, err := s.db.SortedSet(queue)
		if err != nil || len(waits) > maxWaits {
			return k, false
		}
		for member, ticket := range waits {
			k = k.add(Wait{member, int64(ticket)})
		}
		k.QueueDies = s.dies(queue)
	}

	return k, true
}

// text returns the text stored under a name, and when Redis drops it, µs; "" and 0 if there is none. It returns false if
// there is something that is not a text.
func (s store) text(name string) (text string, dies int64, ok bool) {
	if !s.db.Exists(name) {
		return "", 0, true
	}

	text, err := s.db.Get(name)
	return text, s.dies(name), err == nil && text != ""
}

// never is when Redis drops a key that has no expiry.
const never = math.MaxInt64

// dies returns when Redis drops a key, µs.
func (s store) dies(name string) int64 {
	ttl := s.db.TTL(name)
	if ttl == 0 {
		return never
	}

	return s.µs + int64((ttl+time.Microsecond-1)/time.Microsecond)
}

// save writes the differences.
func (s store) save(before, after Node) {
	if after.Guard != before.Guard {
		_ = s.db.Set(s.guard(), after.Guard.String())
	}
	if note := after.Note; note != before.Note {
		_ = s.db.Set(s.note(), fmt.Sprintf("%d %d", note.Longest, note.Since))
	}

	for name, k := range after.Keys {
		s.saveKey(name, before.Keys[name], k)
	}
}

func (s store) saveKey(name string, before, after Key) {
	resource, text := s.resource(name), after.Stored().String()
	isSame := text == before.Stored().String() && after.Dies == before.Dies
	switch {
	case isSame:
	case after.Dies == 0:
		s.db.Del(resource)
	default:
		s.set(resource, text, before.Dies, after.Dies)
	}

	queue := s.queue(name)
	isSame = slices.Equal(after.Queue, before.Queue) && after.QueueDies == before.QueueDies
	if !isSame {
		ttl := s.db.TTL(queue)
		s.db.Del(queue)
		for _, w := range after.Queue {
			_, _ = s.db.ZAdd(queue, float64(w.Ticket), w.Member)
		}
		if len(after.Queue) > 0 {
			s.expire(queue, ttl, before.QueueDies, after.QueueDies)
		}
	}

	for attempt, e := range after.Ends {
		old := before.Ends[attempt]
		if e != old {
			s.set(s.tombstone(attempt), e.How, old.Dies, e.Dies)
		}
	}
}

// set stores a text.
func (s store) set(name, text string, diedBefore, dies int64) {
	ttl := s.db.TTL(name)
	_ = s.db.Set(name, text)
	s.expire(name, ttl, diedBefore, dies)
}

// expire lets a key live until dies, or for as long as before, which was ttl, if that has not changed.
func (s store) expire(name string, ttl time.Duration, before, dies int64) {
	if dies != before {
		ttl = time.Duration(dies-s.µs) * time.Microsecond
	}
	if ttl > 0 {
		s.db.SetTTL(name, ttl)
	}
}

// Stored returns the key in the form in which a resource is stored.
func (k Key) Stored() testutil.Resource {
	r := testutil.Resource{
		Expiry: k.Expiry, Counter: k.Counter, Before: k.Before, Owner: k.Owner, Metadata: k.Carried,
		Next: k.Turn, TurnUntil: k.TurnUntil, MayHaveWaiter: k.Marked, Ended: k.HoldEnded,
	}
	if d := k.Record; d != nil {
		r.Record = &testutil.ResourceRecord{Ballot: d.Ballot, KeptUntil: d.Kept, Origin: d.Token, Result: d.Result}
	}

	return r
}

// parseGuard parses a guard record. If text is no guard record, the result has another String.
func parseGuard(text string) Guard {
	memory, rest, _ := strings.Cut(text, " ")
	history, began, _ := strings.Cut(memory, ".")
	since, declared := strings.CutSuffix(began, "!")
	marked, claimant, _ := strings.Cut(rest, " ")
	longest, mark, _ := strings.Cut(marked, ">")
	to, at, _ := strings.Cut(mark, "@")

	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}

	return Guard{
		History: history, Since: number(since), Declared: declared,
		Longest: number(longest), MarkTo: number(to), MarkedAt: number(at), Claimant: claimant,
	}
}
