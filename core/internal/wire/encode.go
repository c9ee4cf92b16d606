package wire

import "time"

// A Call is a command that runs requests on a node.
type Call struct {
	args   []any
	source string
}

// Args is the command, for a node that knows the script.
func (c Call) Args() []any { return c.args }

// InFull is the command for a node that does not know the script yet.
func (c Call) InFull() []any { return append([]any{"eval", c.source}, c.args[2:]...) }

// Encode makes a command of one request. The wall clock is read when the request is about to leave, after the time from which
// it is trusted: however long this process pauses in between, and whatever becomes of its clock meanwhile, the node then judges
// the request by a clock that is not older than the trust.
func (h *Head) Encode(r Request, wall time.Time) Call {
	s, l := r.script, r.lock
	if r.args != nil {
		return Call{r.args, s.source}
	}
	args := append(make([]any, 0, 14+len(r.tail)), evalsha, s.sha, nil, l.resource)
	if l.tombstone != nil {
		args = append(args, l.tombstone)
	}
	if s.form == whole && l.guard != nil {
		args = append(args, l.guard)
	}
	args[2] = len(args) - 3 // small integers are not allocated
	if l.id != nil {
		args = append(args, l.id)
	}
	switch s.form {
	case whole:
		args = h.append(args, r.lease.ms, wall)
	case declares:
		args = append(args, wall.UnixMicro(), h.window, h.maxTTL, h.lag)
	case bare:
	}
	return Call{append(args, r.tail...), s.source}
}

// append appends what all requests say.
func (h *Head) append(args []any, lease any, wall time.Time) []any {
	return append(args, wall.UnixMicro(), h.window, lease, h.maxTTL, h.lag, h.idle)
}

// EncodeBatch makes a command of n requests, none of which is to be sent alone. Those that follow one another and have much in
// common are a group.
func (h *Head) EncodeBatch(n int, request func(i int) Request, wall time.Time) Call {
	args := append(make([]any, 0, 16+8*n), evalsha, batchScript.sha, nil)
	var guard any
	for i := range n {
		l := request(i).lock
		args, guard = append(args, l.resource, l.tombstone), l.guard
	}
	if guard != nil {
		args = append(args, guard)
	}
	args[2] = len(args) - 3
	args = h.append(append(args, NoMemory), 0, wall)
	var g group
	for i := range n {
		args = g.add(args, request(i))
	}
	return Call{args, batchScript.source}
}

// A group is what stands in a batch once for requests that have it in common.
type group struct {
	of    Request // its first
	count int     // place of how many there are
}

// add appends what a batch says of a request.
func (g *group) add(args []any, r Request) []any {
	if g.has(r) {
		args[g.count] = args[g.count].(int) + 1
	} else {
		*g = group{r, len(args) + 1}
		args = append(args, r.script.word, 1, r.lease.ms)
		for _, i := range r.script.shared {
			args = append(args, r.place(i))
		}
	}
	args = append(args, r.lock.id)
	for _, i := range r.script.own {
		args = append(args, r.tail[i])
	}
	return args
}

// has reports whether a request goes with the group.
func (g *group) has(r Request) bool {
	if g.of.script != r.script || g.of.lease != r.lease {
		return false
	}
	for _, i := range r.script.shared {
		if g.of.place(i) != r.place(i) {
			return false
		}
	}
	return true
}

// place is one of the request's own arguments, "" if it was left out.
func (r Request) place(i int) any {
	if i < len(r.tail) {
		return r.tail[i]
	}
	return ""
}
