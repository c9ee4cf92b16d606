package core

import "time"

// together is the argument list of a batch. Requests that follow one another and have much in common are a group.
func together(node int, batch []request, wall time.Time) []any {
	first := batch[0].r
	args := make([]any, 0, 16+8*len(batch))
	args = append(args, evalsha, batchScript.sha, nil)
	for _, q := range batch {
		args = append(args, q.r.args[resourceArg], q.r.args[tombstoneArg])
	}
	if first.p.guarded {
		args = append(args, first.e.guards[first.bucket])
	}
	args[keysArg] = len(args) - 3
	args = first.e.head(first.p, append(args, noMemory))
	args[wallArg(args)] = stamp(wall)
	var g group
	for _, q := range batch {
		args = g.add(args, q.r, node)
	}
	return args
}

// A group is what stands in a batch once for requests that have it in common.
type group struct {
	s     *script
	lease any
	tail  []any // of its first request
	count int   // place of how many there are
}

// add appends what a batch says of a round's request to a node.
func (g *group) add(args []any, r *round, node int) []any {
	tail := r.common(node)[resourceArg+r.args[keysArg].(int):]
	id, lease := tail[0], any(0)
	if r.script == releaseScript {
		tail = tail[1:]
	} else {
		lease, tail = tail[3], tail[7:]
	}
	if r.tail != nil {
		tail = r.tail(node)
	}
	if g.with(r.script, lease, tail) {
		args[g.count] = args[g.count].(int) + 1
	} else {
		*g = group{r.script, lease, tail, len(args) + 1}
		args = append(args, r.script.word, 1, lease)
		for _, i := range r.script.shared {
			args = append(args, place(tail, i))
		}
	}
	args = append(args, id)
	for _, i := range r.script.own {
		args = append(args, tail[i])
	}
	return args
}

// with reports whether a request goes with the group.
func (g *group) with(s *script, lease any, tail []any) bool {
	if g.s != s || g.lease != lease {
		return false
	}
	for _, i := range s.shared {
		if place(g.tail, i) != place(tail, i) {
			return false
		}
	}
	return true
}

// place is an argument, "" if it was left out.
func place(tail []any, i int) any {
	if i < len(tail) {
		return tail[i]
	}
	return ""
}
