package wire

import "time"

// A Sent is a request as it stands in a command, for who looks at what is sent.
type Sent struct {
	Op                  Op
	Resource, Tombstone string    // "" = the command does not name it
	Wall, Proposes      time.Time // zero where it says none
	DropBelow           uint64    // of a release
	Undo                bool
	Plain               bool  // it may be answered by the clock alone
	Args                []any // all of the command
}

// SentIn takes a command apart: its requests, in their order; none where it runs no script of this package.
func SentIn(args []any) (all []Sent) {
	var of *script
	for _, s := range scripts {
		if len(args) > 3 && (args[1] == s.sha || args[1] == any(s.source)) {
			of = s
		}
	}
	switch {
	case of == nil:
		return nil
	case of.op != OpBatch:
		return []Sent{{Op: of.op, Resource: args[3].(string), Args: args}}
	}
	keys := args[3 : 3+args[2].(int)]
	in := packed{rest: bodyIn(args)}
	guarded := in.take(1) == "\x01"
	wall := NodeTime(in.number())
	in.take(4 * 8)
	if guarded {
		in.text()
		in.text()
		in.take(8)
	}
	for in.rest != "" && !in.bad {
		kind, count := in.take(1)[0], 1
		switch kind {
		case plainAcquire, plainRenew:
			count = int(in.take(1)[0])
			in.take(4 * 8)
			in.text()
		case plainRelease:
			count = int(in.take(1)[0])
			in.text()
		}
		for i := range count {
			q := Sent{Op: opOf[kind], Plain: kind < 'a', Resource: keys[i].(string), Wall: time.UnixMicro(int64(wall)), Args: args}
			switch kind {
			case plainAcquire:
				q.Tombstone = keys[count+i].(string)
			case plainRenew, plainRelease, touches:
			default:
				q.Tombstone = keys[1].(string)
			}
			in.skip(kind, &q)
			all = append(all, q)
		}
		keys = keys[count:]
		if kind == plainAcquire || kind >= 'a' && kind != touches {
			keys = keys[count:]
		}
	}
	return all
}

// bodyIn is the packed argument of a command that Encode made, or "".
func bodyIn(args []any) string {
	switch last := args[len(args)-1].(type) {
	case *body:
		return string(*last)
	case []byte: // as somebody has changed it
		return string(last)
	}
	return ""
}

var opOf = map[byte]Op{plainAcquire: OpAcquire, acquires: OpAcquire, plainRenew: OpRenew, renews: OpRenew,
	plainRelease: OpRelease, releases: OpRelease, completes: OpComplete, touches: OpTouch}

// skip reads what is a request's own.
func (p *packed) skip(kind byte, q *Sent) {
	switch kind {
	case plainAcquire, acquires:
		q.Proposes = time.UnixMicro(int64(p.number()))
		p.text()
		p.take(int(p.number()))
		p.take(int(p.number()))
	case plainRenew, renews:
		p.take(8)
		p.text()
		p.take(2 * 8)
		p.text()
	case plainRelease, releases:
		p.text()
		q.DropBelow = p.number()
	case completes:
		p.take(8)
		p.text()
		p.text()
		p.take(3*8 + 1)
		p.text()
		p.take(int(p.number()))
	}
	switch kind {
	case acquires:
		p.take(8)
	case renews:
		p.take(2 * 8)
		p.text()
	case releases:
		p.take(2 * 8)
		q.Undo = p.take(1) == "\x01"
		p.text()
		p.take(8)
	}
}

// Sources are all scripts that nodes run.
func Sources() (all []string) {
	for _, s := range scripts {
		all = append(all, s.source)
	}
	return all
}
