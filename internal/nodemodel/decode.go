package nodemodel

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// decodePacked decodes the command of a script that runs several requests. ARGV 1 has them packed, see run.lua and
// requests.lua.
func decodePacked(keys, args []string) (Command, bool) {
	in := &unpacker{rest: args[0]}
	c := Command{Guarded: in.bool()}
	c.Wall = in.number()
	c.Window = in.number()
	c.MaxTTL = in.number()
	c.Lag = in.number()
	in.number() // the life of an idle counter follows from MaxTTL
	if c.Guarded {
		// The memory that the client expects decides only how fast a script runs.
		in.text()
		in.text()
		in.number()
	}

	for in.rest != "" && !in.failed {
		kind := in.take(1)[0]
		count := 1
		lease := int64(0)
		if kind < 'a' {
			count = int(in.take(1)[0])
			if kind != 'E' {
				in.take(3 * 8) // the ranges of the clock and of a token
				lease = in.number()
			}
			in.text() // the life of the resource
		}

		names := count
		hasTombstones := !strings.ContainsRune("REt", rune(kind))
		if hasTombstones {
			names = 2 * count // they follow the resources
		}
		if names > len(keys) {
			return Command{}, false
		}
		for _, resource := range keys[:count] {
			q := in.request(kind)
			q.Key = keyOf(resource)
			if kind < 'a' {
				q.Lease = lease
			}
			c.Requests = append(c.Requests, q)
		}
		keys = keys[names:]
	}

	return c, !in.failed
}

// request reads a request of a kind.
func (in *unpacker) request(kind byte) (q Request) {
	switch kind {
	case 'A', 'a':
		return in.acquire(kind == 'a')
	case 'R', 'r':
		return in.renew(kind == 'r')
	case 'E', 'e':
		return in.release(kind == 'e')
	case 'c':
		return in.complete()
	case 't':
		return Request{Op: OpTouch}
	}

	in.failed = true
	return Request{}
}

// acquire reads an acquisition.
func (in *unpacker) acquire(settle bool) Request {
	q := Request{Op: OpAcquire}
	a := &q.Acquire
	a.Proposed = in.number()
	q.Attempt = in.text()
	if in.number() > 0 {
		in.take(9) // an empty turn
		a.Carried = in.text()
	}

	if in.number() > 0 {
		channel, name, ticket := in.text(), in.text(), in.number()
		if name == "" {
			name, ticket = q.Attempt, a.Proposed // the call began with this attempt
		}
		a.Wait = Wait{channel + " " + name, ticket}
	}

	if settle {
		a.Settle = true
		q.Lease = in.number()
	}

	return q
}

// renew reads a renewal, or a write-back.
func (in *unpacker) renew(writeBack bool) Request {
	q := Request{Op: OpRenew}
	a := &q.Renew
	a.Token = in.number()
	q.Attempt = in.text()
	a.Confirmed = in.number()
	a.Turn = in.number()
	a.Carried = in.text()
	if writeBack {
		q.Lease = in.number()
		a.Granted = in.number()
		a.Memory = in.text()
	}

	return q
}

// release reads a release, which has more arguments if it is not plain.
func (in *unpacker) release(more bool) Request {
	q := Request{Op: OpRelease}
	a := &q.Release
	q.Attempt = in.text()
	a.DropBelow = in.number()
	a.TombstoneLife = in.number()
	if a.TombstoneLife <= 0 {
		a.Arrived = true
		a.TombstoneLife = -a.TombstoneLife
	}

	if more {
		a.Cooldown = in.number()
		how := in.take(1)[0]
		a.RestoreCounter = how&1 != 0
		a.Repeated = how&2 != 0
		a.Wait = Wait{in.text(), in.number()}
	}

	return q
}

// complete reads a completion.
func (in *unpacker) complete() Request {
	q := Request{Op: OpComplete}
	a := &q.Complete
	a.Ballot = in.number()
	q.Attempt = in.text()
	a.Memory = in.text()
	a.Retention = in.number()
	a.Token = in.number()
	a.TombstoneLife = in.number()
	a.Decided = in.bool()
	a.Leaving = in.text()
	a.Result = in.take(int(in.number()))
	return q
}

// decodeRevoke decodes a call of revoke.lua.
func decodeRevoke(keys, args []string) (Command, bool) {
	idle, err := strconv.ParseInt(args[2], 10, 64)
	q := Request{Op: OpRevoke, Key: keyOf(keys[0]), Attempt: args[0]}
	return Command{MaxTTL: idle - jump, Requests: []Request{q}}, err == nil
}

// decodeForget decodes a call of forget.lua.
func decodeForget(keys, args []string) (Command, bool) {
	token, err := strconv.ParseInt(args[0], 10, 64)
	q := Request{Op: OpForget, Key: keyOf(keys[0]), Token: token}
	return Command{Requests: []Request{q}}, err == nil
}

// decodeProvision decodes a call of provision.lua.
func decodeProvision(_, args []string) (Command, bool) {
	c, err := decodeClient(args[1:5])
	c.Requests = []Request{{Op: OpProvision, Claim: args[0], Found: args[5]}}
	return c, err == nil
}

// decodeLower decodes a call of lower.lua.
func decodeLower(_, args []string) (Command, bool) {
	c, err := decodeClient(args[:4])
	to, errTo := strconv.ParseInt(args[5], 10, 64)
	c.Requests = []Request{{Op: OpLower, Step: args[4], To: to, Mark: args[6]}}
	return c, err == nil && errTo == nil
}

// decodeClient decodes the clock and the settings of a client.
func decodeClient(args []string) (c Command, err error) {
	c.Guarded = true
	for i, to := range []*int64{&c.Wall, &c.Window, &c.MaxTTL, &c.Lag} {
		*to, err = strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			return c, err
		}
	}

	return c, nil
}

// keyOf returns the key of the user, by the name of its resource; "" if it is none.
func keyOf(resource string) string {
	_, key, _ := strings.Cut(resource, "}r:")
	return key
}

// An unpacker reads values in the formats of Lua's struct.pack. A value that cannot be read is made of zeros, and sets
// failed.
type unpacker struct {
	rest   string
	failed bool
}

// take reads n bytes.
func (in *unpacker) take(n int) string {
	if n < 0 || n > len(in.rest) {
		in.failed = true
		in.rest = ""
		return "\x00\x00\x00\x00\x00\x00\x00\x00"
	}

	taken := in.rest[:n]
	in.rest = in.rest[n:]
	return taken
}

// number reads a double.
func (in *unpacker) number() int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(in.take(8)))))
}

// text reads a text that is preceded by its length.
func (in *unpacker) text() string { return in.take(int(in.take(1)[0])) }

func (in *unpacker) bool() bool { return in.take(1)[0] == 1 }
