package wire

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// A Call is a command that runs requests on a node.
type Call struct {
	args   []any
	source string
	memory string // what the node is taken to remember: see Answers
}

// A Head is what all requests of a Locker say of it. It does not change; to learn of a longer TTL makes another.
type Head struct {
	MaxTTL time.Duration // the longest lease in use, as far as is known

	window, maxTTL, lag, idle int64 // ms
}

// NewHead is that of a Locker with these settings.
func NewHead(window, maxTTL, lag time.Duration) *Head {
	return Head{window: window.Milliseconds(), lag: lag.Milliseconds()}.WithMaxTTL(maxTTL)
}

// WithMaxTTL is h where that is the longest lease in use. With it goes for how long Redis keeps an idle fencing counter: tokens
// may be ahead of a node's clock by a part of the longest lease.
func (h Head) WithMaxTTL(d time.Duration) *Head {
	h.MaxTTL = d
	h.maxTTL = d.Milliseconds()
	h.idle = (max(IdleFence, d) + ClockJump).Milliseconds()
	return &h
}

// A body is the packed argument of a command. The arguments have a pointer to it, which takes no allocation of its own.
type body []byte

// MarshalBinary is what go-redis sends.
func (b *body) MarshalBinary() ([]byte, error) { return *b, nil }

// Args is the command, for a node that knows the script.
func (c Call) Args() []any { return c.args }

// InFull is the command for a node that does not know the script yet.
func (c Call) InFull() []any { return append([]any{"eval", c.source}, c.args[2:]...) }

const maxGroup = math.MaxUint8 // requests

// Encode makes a command of n requests, none of which is to be sent alone if there are more. memory is what the node was last
// heard to remember. The wall clock is read when they are about to leave, after the time from which they are trusted: however
// long this process pauses in between, and whatever becomes of its clock meanwhile, the node then judges them by a clock that
// is not older than the trust.
func (h *Head) Encode(n int, request func(i int) Request, memory string, wall time.Time) Call {
	first := request(0)
	if first.kind == 0 {
		return h.alone(first, wall)
	}
	size := 96 + 64*n + 2*len(memory) + ownSize(n, request)
	guard := guardOf(n, request)
	if guard == nil {
		memory = NoMemory
	}
	c := new(struct { // what a command of one request needs, in one allocation
		args [7]any
		body body
	})
	args := append(slices.Grow(c.args[:0], 5+2*n), evalsha, nil, nil)
	text := h.append(make([]byte, 0, size), wall, guard != nil, memory)
	for start := 0; start < n; {
		first := request(start)
		end := groupEnd(start, n, request)
		text = h.group(text, &first, end-start, wall)
		for i := start; i < end; i++ {
			r := request(i)
			text = append(text, r.own...)
			args = append(args, r.lock.resource)
			if !r.isPlain() && r.kind != touches {
				args = append(args, r.lock.tombstone)
			}
		}
		if first.kind == plainAcquire {
			for i := start; i < end; i++ {
				args = append(args, request(i).lock.tombstone)
			}
		}
		start = end
	}
	if guard != nil {
		args = append(args, guard)
	}
	script := first.scriptAmong(n, guard != nil)
	args[1] = script.sha
	args[2] = len(args) - 3
	c.body = text
	return Call{append(args, &c.body), script.source, memory}
}

func ownSize(n int, request func(i int) Request) (size int) {
	for i := range n {
		r := request(i)
		size += len(r.own)
	}
	return size
}

func guardOf(n int, request func(i int) Request) any {
	for i := range n {
		r := request(i)
		if r.op != OpRelease && r.lock.guard != nil {
			return r.lock.guard
		}
	}
	return nil
}

func groupEnd(start, n int, request func(i int) Request) int {
	first := request(start)
	end := start + 1
	last := min(n, start+maxGroup)
	for end < last && first.goesWith(request(end)) {
		end++
	}
	return end
}

// scriptAmong is the script that runs r and the others that travel with it, n together.
func (r *Request) scriptAmong(n int, guarded bool) *script {
	switch {
	case n == 1 && r.kind == plainRelease:
		return releaseScript
	case n == 1 && r.kind == plainAcquire && guarded:
		return guardedScript
	case n == 1 && r.kind == plainAcquire:
		return acquireScript
	}
	return runScript
}

// alone makes a command of a request that has a script of its own.
func (h *Head) alone(r Request, wall time.Time) Call {
	args := append(make([]any, 0, 9+len(r.tail)), evalsha, r.script.sha, 1, r.lock.resource)
	if r.lock.tombstone != nil {
		args[2] = 2
		args = append(args, r.lock.tombstone)
	}
	if r.lock.id != "" {
		args = append(args, r.lock.id)
	}
	if r.op == OpProvision || r.op == OpLower {
		args = append(args, wall.UnixMicro(), h.window, h.maxTTL, h.lag)
	}
	return Call{append(args, r.tail...), r.script.source, ""}
}

// append packs what all requests of a command share.
func (h *Head) append(b []byte, wall time.Time, guarded bool, memory string) []byte {
	b = append(b, oneOrZero(guarded))
	b = appendNumber(b, wall.UnixMicro())
	b = appendNumber(b, h.window)
	b = appendNumber(b, h.maxTTL)
	b = appendNumber(b, h.lag)
	b = appendNumber(b, h.idle)
	if !guarded {
		return b
	}
	// The guard record of a node that remembers that, has not been claimed, and knows of no longer lease.
	history, since, declared := readMemory(memory)
	votes := float64(since + h.maxTTL + h.lag)
	switch {
	case since < 0:
		votes = math.Inf(1) // never
	case declared:
		votes = 0
	}
	const line = "master_replid:"
	b = append(b, byte(len(line)+len(history)))
	b = append(b, line...)
	b = append(b, history...)
	at := len(b)
	b = append(b, 0)
	b = append(b, memory...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, h.maxTTL, 10)
	b[at] = byte(len(b) - at - 1)
	return appendFloat(b, votes)
}

// group packs what stands before count requests that are like r.
func (h *Head) group(b []byte, r *Request, count int, wall time.Time) []byte {
	b = append(b, r.kind)
	if !r.isPlain() {
		return b
	}
	b = append(b, byte(count))
	life := h.idle
	if r.kind != plainRelease {
		near := h.maxTTL * 250
		least := math.Inf(-1)
		most := math.Inf(1)
		if h.window > 0 {
			least = float64(wall.UnixMicro() - h.window*1000)
			most = float64(wall.UnixMicro() + h.window*1000)
		}
		life = r.lease.ms + Slack.Milliseconds()
		if life <= h.idle+near/1000 { // it is not always the same: none is plain
			least = math.Inf(1)
		}
		b = appendFloat(b, least)
		b = appendFloat(b, most)
		b = appendNumber(b, near)
		b = appendNumber(b, r.lease.ms)
	}
	at := len(b)
	b = append(b, 0)
	b = strconv.AppendInt(b, life, 10)
	b[at] = byte(len(b) - at - 1)
	return b
}

// goesWith reports whether another request goes into the group of r.
func (r *Request) goesWith(other Request) bool {
	return r.kind == other.kind && r.isPlain() && r.lease == other.lease
}

func (r *Request) isPlain() bool { return r.kind < 'a' }
