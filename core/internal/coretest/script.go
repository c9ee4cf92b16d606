package coretest

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Script is what a command runs, and where in a batch the arguments are that a request has alone.
type Script struct {
	Op          wire.Op
	SHA, Source string
	word        string // "" = it is sent alone
	shared, own []int  // by their place after the head; see batch.lua
}

// Scripts are all that nodes run.
var Scripts = func() (all []Script) {
	k := wire.NewKeyspace("p", 1, false)
	l, h := k.LockOf("key", "attempt"), wire.NewHead(0, 1, 0)
	for _, s := range []struct {
		q           wire.Request
		word        string
		shared, own []int
	}{
		{l.Acquire(wire.Millis{}, wire.Acquire{}), "A", []int{0, 2, 3, 4, 5}, []int{1}},
		{l.Renew(wire.Millis{}, 1, func(int) wire.Renew { return wire.Renew{} })(0), "R", []int{2, 3, 4, 5}, []int{0, 1}},
		{l.Complete(wire.Millis{}, 1, func(int) wire.Complete { return wire.Complete{} })(0), "C", nil, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{l.Release(h, wire.Release{}), "E", []int{0, 1, 3, 4, 5, 6}, []int{2}},
		{q: k.Touch(0)}, {q: k.Provision(0, "", "")}, {q: l.Revoke(h)}, {q: k.Forget("key", 1)}, {q: k.Probe(0, false)},
	} {
		args, full := h.Encode(s.q, time.Time{}).Args(), h.Encode(s.q, time.Time{}).InFull()
		all = append(all, Script{s.q.Op(), args[1].(string), full[1].(string), s.word, s.shared, s.own})
	}
	batch := h.EncodeBatch(0, nil, time.Time{})
	return append(all, Script{Op: wire.OpBatch, SHA: batch.Args()[1].(string), Source: batch.InFull()[1].(string)})
}()

// ScriptOf is what a command runs.
func ScriptOf(args []any) (s Script, ok bool) {
	for _, s := range Scripts {
		if len(args) > 1 && (args[1] == any(s.SHA) || args[1] == any(s.Source)) {
			return s, true
		}
	}
	return Script{}, false
}

// A Sent is a request with its arguments as if it had been sent alone.
type Sent struct {
	Op   wire.Op
	Args []any
}

// Places in the arguments of a request: how many keys there are, and the first of them.
const (
	KeysArg = 2 + iota
	ResourceArg
	TombstoneArg
)

// WallArg is the place of the client's wall clock.
func WallArg(args []any) int { return ResourceArg + args[KeysArg].(int) + 1 }

// ProposalArg is the place of the token that an acquisition proposes.
func ProposalArg(args []any) int { return WallArg(args) + 7 }

// RequestsOf takes a command apart.
func RequestsOf(args []any) (all []Sent) {
	s, ok := ScriptOf(args)
	switch {
	case !ok:
		return nil
	case s.Op != wire.OpBatch:
		return []Sent{{s.Op, args}}
	}
	n := args[KeysArg].(int)
	keys, argv := args[ResourceArg:ResourceArg+n], args[ResourceArg+n:]
	head, rest := argv[:7], argv[7:]
	for k := 0; k+1 < n; {
		s := Scripts[slices.IndexFunc(Scripts, func(s Script) bool { return s.word != "" && s.word == rest[0] })]
		count, lease, shared := rest[1].(int), rest[2], rest[3:3+len(s.shared)]
		rest = rest[3+len(s.shared):]
		for range count {
			own := []any{keys[k], keys[k+1]}
			if n%2 == 1 && s.Op != wire.OpRelease {
				own = append(own, keys[n-1])
			}
			q := Sent{Op: s.Op, Args: append([]any{"evalsha", s.SHA, len(own)}, append(own, rest[0])...)}
			if s.Op != wire.OpRelease {
				q.Args = append(append(append(q.Args, head[1:3]...), lease), head[4:]...)
			}
			tail := make([]any, len(s.shared)+len(s.own))
			for i, at := range s.shared {
				tail[at] = shared[i]
			}
			for i, at := range s.own {
				tail[at] = rest[1+i]
			}
			q.Args = append(q.Args, tail...)
			rest = rest[1+len(s.own):]
			all = append(all, q)
			k += 2
		}
	}
	return all
}

// SourceOf is the script for an op.
func SourceOf(op wire.Op) string {
	return Scripts[slices.IndexFunc(Scripts, func(s Script) bool { return s.Op == op })].Source
}
