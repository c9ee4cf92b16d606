package wire

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// A Call is a Redis command that runs requests on a node.
type Call struct {
	args   []any
	source string
	memory string // the node's memory, as the client assumes it; a plain answer confirms it
}

// A Preamble has the settings of a Locker that all its requests contain. It is immutable: if the Locker learns of a
// longer TTL, it makes another one.
type Preamble struct {
	MaxTTL time.Duration // the longest lease in use, as far as the Locker knows

	window, maxTTL, lag, idle int64 // clock window, MaxTTL, replica lag, life of an idle fencing counter; in ms
}

// NewPreamble returns the Preamble of a Locker with these settings.
func NewPreamble(window, maxTTL, lag time.Duration) *Preamble {
	return Preamble{window: window.Milliseconds(), lag: lag.Milliseconds()}.WithMaxTTL(maxTTL)
}

// WithMaxTTL returns a copy of h with d as the longest lease in use. The life of an idle fencing counter follows from
// it, because tokens may be ahead of a node's clock by a part of the longest lease.
func (h Preamble) WithMaxTTL(d time.Duration) *Preamble {
	h.MaxTTL = d
	h.maxTTL = d.Milliseconds()
	h.idle = (max(IdleFence, d) + ClockJump).Milliseconds()
	return &h
}

// A body is the packed argument of a command. The arguments contain a pointer to it, because a pointer in an
// interface value takes no allocation.
type body []byte

// MarshalBinary returns the bytes that go-redis sends.
func (b *body) MarshalBinary() ([]byte, error) {
	return *b, nil
}

// Args returns the command for a node that knows the script.
func (c Call) Args() []any {
	return c.args
}

// InFull returns the command with the source of the script, for a node that does not know the script.
func (c Call) InFull() []any {
	return append([]any{"eval", c.source}, c.args[2:]...)
}

// maxGroup is how many requests a group has at most: their number is one byte.
const maxGroup = math.MaxUint8

// Encode makes a command of n requests. If there are several, none of them may have a script of its own. memory is
// the memory that the node last reported.
//
// wall must be read just before the command is sent, after the time from which the requests are trusted. Then the
// node judges them by a clock reading that is not older than the trust, even if this process pauses or its clock is
// set between the two.
func (h *Preamble) Encode(n int, request func(i int) Request, memory string, wall time.Time) Call {
	first := request(0)
	if first.kind == 0 {
		return h.encodeAlone(first, wall)
	}

	size := 96 + 64*n + 2*len(memory) + payloadSize(n, request)
	guard := guardOf(n, request)
	if guard == nil {
		memory = NoMemory
	}

	// All that a command of one request needs is one allocation.
	c := new(struct {
		args [7]any
		body body
	})
	args := append(slices.Grow(c.args[:0], 5+2*n), evalsha, nil, nil)
	text := h.appendTo(make([]byte, 0, size), wall, guard != nil, memory)
	for start := 0; start < n; {
		head := request(start)
		end := groupEnd(start, n, request)
		text = h.appendGroupHead(text, &head, end-start, wall)

		for i := start; i < end; i++ {
			r := request(i)
			text = append(text, r.payload...)
			args = append(args, r.lock.resource)

			if !r.isPlain() && r.kind != kindTouch {
				args = append(args, r.lock.tombstone)
			}
		}

		if head.kind == kindPlainAcquire {
			// The tombstones of a group stand behind its resources, so that the script can read them at once.
			for i := start; i < end; i++ {
				args = append(args, request(i).lock.tombstone)
			}
		}
		start = end
	}
	if guard != nil {
		args = append(args, guard)
	}

	script := first.scriptFor(n, guard != nil)
	args[1] = script.sha
	args[2] = len(args) - 3 // the number of keys
	c.body = text
	return Call{append(args, &c.body), script.source, memory}
}

// payloadSize returns the length of the payloads of n requests.
func payloadSize(n int, request func(i int) Request) (size int) {
	for i := range n {
		r := request(i)
		size += len(r.payload)
	}
	return size
}

// guardOf returns the name of the guard record if one of n requests needs it, otherwise nil. A release does not. All
// requests of a command are for one bucket, so it is the same record for all.
func guardOf(n int, request func(i int) Request) any {
	for i := range n {
		r := request(i)
		if r.op != OpRelease && r.lock.guard != nil {
			return r.lock.guard
		}
	}
	return nil
}

// groupEnd returns the index behind the group of requests that begins at start.
func groupEnd(start, n int, request func(i int) Request) int {
	first := request(start)
	end := start + 1
	last := min(n, start+maxGroup)

	for end < last && first.sharesGroupWith(request(end)) {
		end++
	}
	return end
}

// scriptFor returns the script that runs r and the other requests of its command, n in all.
func (r *Request) scriptFor(n int, guarded bool) *script {
	switch {
	case n == 1 && r.kind == kindPlainRelease:
		return releaseScript
	case n == 1 && r.kind == kindPlainAcquire && guarded:
		return guardedScript
	case n == 1 && r.kind == kindPlainAcquire:
		return acquireScript
	}
	return runScript
}

// encodeAlone makes a command of a request that has its own script.
func (h *Preamble) encodeAlone(r Request, wall time.Time) Call {
	args := append(make([]any, 0, 9+len(r.extra)), evalsha, r.script.sha, 1, r.lock.resource)

	if r.lock.tombstone != nil {
		args[2] = 2 // keys
		args = append(args, r.lock.tombstone)
	}

	if r.lock.id != "" {
		args = append(args, r.lock.id)
	}

	if r.op == OpProvision || r.op == OpLower {
		args = append(args, wall.UnixMicro(), h.window, h.maxTTL, h.lag)
	}
	return Call{append(args, r.extra...), r.script.source, ""}
}

// appendTo appends the part of a packed argument that all requests of a command share.
func (h *Preamble) appendTo(b []byte, wall time.Time, guarded bool, memory string) []byte {
	b = append(b, boolByte(guarded))

	b = appendNumber(b, wall.UnixMicro())
	b = appendNumber(b, h.window)
	b = appendNumber(b, h.maxTTL)
	b = appendNumber(b, h.lag)
	b = appendNumber(b, h.idle)
	if !guarded {
		return b
	}

	// The script expects a node that has this memory, is not claimed, and knows of no lease longer than h.maxTTL. Such
	// a node is described by the line of INFO with its replication history, by its guard record, and by the end of its
	// quarantine.
	history, since, declared := parseMemory(memory)
	votes := float64(since + h.maxTTL + h.lag)
	switch {
	case since < 0:
		votes = math.Inf(1) // never: the client does not know the memory
	case declared:
		votes = 0
	}

	const line = "master_replid:"
	b = append(b, byte(len(line)+len(history)))
	b = append(b, line...)
	b = append(b, history...)

	at := len(b)
	b = append(b, 0) // the length, which is set below
	b = append(b, memory...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, h.maxTTL, 10)
	b[at] = byte(len(b) - at - 1)
	return appendFloat(b, votes)
}

// appendGroupHead appends the part of a packed argument that stands before a group of count requests like r.
func (h *Preamble) appendGroupHead(b []byte, r *Request, count int, wall time.Time) []byte {
	b = append(b, r.kind)
	if !r.isPlain() {
		return b
	}

	b = append(b, byte(count))
	life := h.idle
	if r.kind != kindPlainRelease {
		near := h.maxTTL * 250 // how far a token may be from the node's clock (µs): a quarter of the longest lease
		least := math.Inf(-1)
		most := math.Inf(1)
		if h.window > 0 {
			least = float64(wall.UnixMicro() - h.window*1000)
			most = float64(wall.UnixMicro() + h.window*1000)
		}

		life = r.lease.ms + ExpirySlack.Milliseconds()
		if life <= h.idle+near/1000 {
			// The life of a resource then depends on its counter, which the plain form ignores. No clock reading
			// allows it.
			least = math.Inf(1)
		}

		b = appendFloat(b, least)
		b = appendFloat(b, most)
		b = appendNumber(b, near)
		b = appendNumber(b, r.lease.ms)
	}

	at := len(b)
	b = append(b, 0) // the length, which is set below
	b = strconv.AppendInt(b, life, 10)
	b[at] = byte(len(b) - at - 1)
	return b
}

// sharesGroupWith reports whether another request can be in the group of r.
func (r *Request) sharesGroupWith(other Request) bool {
	return r.kind == other.kind && r.isPlain() && r.lease == other.lease
}

// isPlain reports whether the request has a plain form, see lua/run.lua. The kinds of the others are small letters.
func (r *Request) isPlain() bool {
	return r.kind < 'a'
}
