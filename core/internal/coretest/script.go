package coretest

import (
	"encoding"
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Sent is a request in a command, as RequestsOf parses it.
type Sent struct {
	Op                  wire.Op
	Resource, Tombstone string    // "" if the command does not name it
	Wall, Proposes      time.Time // zero if the request has none
	DropBelow           uint64    // of a release
	Undo                bool
	Plain               bool  // the reply may be the clock alone
	Args                []any // the whole command
}

// A script is a Lua script that nodes run.
type script struct {
	source string
	op     wire.Op
	packed bool // its requests are packed in one argument, each with its kind
}

// scripts has the scripts that nodes run, by SHA and by source. The script of lockctl lower-max-ttl is missing.
var scripts = func() map[string]*script {
	guarded := wire.NewKeyspace("p", 1, true)
	bare := wire.NewKeyspace("p", 1, false)
	lock := guarded.LockOf("k", "a")
	unguarded := bare.LockOf("k", "a")
	h := wire.NewPreamble(0, time.Second, 0)

	all := map[string]*script{}
	add := func(requests int, r wire.Request) {
		call := h.Encode(requests, wire.Repeat(r), wire.NoMemory, time.Time{})
		s := &script{source: call.InFull()[1].(string), op: r.Op()}
		_, s.packed = call.Args()[len(call.Args())-1].(encoding.BinaryMarshaler)

		sha := call.Args()[1].(string)
		all[s.source] = s
		all[sha] = s
	}

	add(2, guarded.Touch(0))
	add(1, lock.Acquire(wire.Millis{}, wire.Acquire{}))
	add(1, unguarded.Acquire(wire.Millis{}, wire.Acquire{}))
	add(1, lock.Release(wire.Release{}))
	add(1, lock.Revoke(h))
	add(1, guarded.Forget("k", 1))
	add(1, guarded.Provision(0, "claim", wire.NoMemory))
	add(1, guarded.Probe(0, false))
	return all
}()

// Sources returns the sources of these scripts.
func Sources() (all []string) {
	for name, s := range scripts {
		if name == s.source {
			all = append(all, name)
		}
	}
	return all
}

// RequestsOf parses a command. It returns its requests in their order, or none if it is not a command of lockkit.
func RequestsOf(args []any) (all []Sent) {
	if len(args) < 4 {
		return nil
	}

	name, _ := args[1].(string)
	of := scripts[name]
	if of == nil {
		return nil
	}
	if !of.packed {
		return []Sent{{Op: of.op, Resource: args[3].(string), Args: args}}
	}

	keys := args[3 : 3+args[2].(int)]
	in := &packed{rest: bodyIn(args)}
	wall := time.UnixMicro(in.skipHead())

	for len(in.rest) > 0 && !in.bad {
		kind := in.take(1)[0]
		count := in.skipGroup(kind)
		tombstones := keys[count:]

		for i := range count {
			q := Sent{
				Op:       opOf[kind],
				Plain:    kind < 'a',
				Resource: keys[i].(string),
				Wall:     wall,
				Args:     args,
			}
			if hasTombstone(kind) {
				q.Tombstone = tombstones[i].(string)
			}
			in.skip(kind, &q)
			all = append(all, q)
		}
		keys = keys[count:]
		if hasTombstone(kind) {
			keys = keys[count:]
		}
	}
	return all
}

// hasTombstone reports whether a command names the tombstones of requests of a kind.
func hasTombstone(kind byte) bool {
	switch kind {
	case 'R', 'E', 't':
		return false
	}
	return true
}

// RequestsOfText parses a command as a node receives it.
func RequestsOfText(args []string) []Sent {
	if len(args) < 4 {
		return nil
	}

	keys, _ := strconv.Atoi(args[2])
	all := []any{args[0], args[1], keys}
	for _, a := range args[3:] {
		all = append(all, a)
	}

	last := len(all) - 1
	all[last] = []byte(args[last])
	return RequestsOf(all)
}

// bodyIn returns the packed argument of a command, or nil if it has none.
func bodyIn(args []any) []byte {
	switch last := args[len(args)-1].(type) {
	case encoding.BinaryMarshaler:
		text, _ := last.MarshalBinary()
		return text
	case []byte: // from RequestsOfText, or changed by a test
		return last
	}
	return nil
}

// opOf has the operations of the kinds of requests, see lua/run.lua.
var opOf = map[byte]wire.Op{
	'A': wire.OpAcquire,
	'a': wire.OpAcquire,
	'R': wire.OpRenew,
	'r': wire.OpRenew,
	'E': wire.OpRelease,
	'e': wire.OpRelease,
	'c': wire.OpComplete,
	't': wire.OpTouch,
}

// A packed reads values in the formats of Lua's struct.unpack. A value that cannot be read is zero, and sets bad.
type packed struct {
	rest []byte
	bad  bool
}

func (p *packed) take(n int) []byte {
	if len(p.rest) < n {
		p.bad = true
		p.rest = nil
		return make([]byte, max(n, 1))
	}

	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *packed) number() int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(p.take(8))))
}

// text skips a text behind its length.
func (p *packed) text() {
	p.take(int(p.take(1)[0]))
}

// skipHead reads the part that all requests of a command share, and returns the client's wall clock in µs.
func (p *packed) skipHead() (wall int64) {
	guarded := p.take(1)[0] == 1
	wall = p.number()
	p.take(4 * 8) // clock window, longest lease, replica lag, life of an idle counter

	// The line of INFO, the guard record, and when the node votes.
	if guarded {
		p.text()
		p.text()
		p.take(8)
	}
	return wall
}

// skipGroup reads the head of a group behind its kind, and returns the number of its requests.
func (p *packed) skipGroup(kind byte) (count int) {
	if kind >= 'a' {
		return 1
	}

	count = int(p.take(1)[0])

	// A group of releases has no clock and no lease.
	if kind != 'E' {
		p.take(4 * 8)
	}
	p.text()
	return count
}

// skip reads the payload of a request.
func (p *packed) skip(kind byte, q *Sent) {
	switch kind {
	case 'A', 'a':
		q.Proposes = time.UnixMicro(p.number())
		p.text()
		p.take(int(p.number()))
		p.take(int(p.number()))
	case 'R', 'r':
		p.take(8)
		p.text()
		p.take(2 * 8)
		p.text()
	case 'E', 'e':
		p.text()
		q.DropBelow = uint64(p.number())
		p.take(8)
	case 'c':
		p.take(8)
		p.text()
		p.text()
		p.take(3*8 + 1)
		p.text()
		p.take(int(p.number()))
	}

	// The kinds that are not plain have more fields.
	switch kind {
	case 'a':
		p.take(8)
	case 'r':
		p.take(2 * 8)
		p.text()
	case 'e':
		p.take(8)
		q.Undo = p.take(1)[0]%2 == 1
		p.text()
		p.take(8)
	}
}
