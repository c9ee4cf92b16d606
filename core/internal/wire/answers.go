package wire

// Answers are what a node answered to a command, in the order of its requests.
type Answers struct {
	memory string
	plain  int64 // the node's clock in ms, or 1: to those that are not among
	odd    []any // number and text of each, in their order
	next   int64
}

// Answers takes the reply to a command apart.
func (c Call) Answers(reply any) (a Answers, err error) {
	a.memory = c.memory
	switch reply := reply.(type) {
	case int64:
		a.plain = reply
	case string: // of a request that has a script of its own
		a.odd = []any{int64(1), reply}
	case []any:
		ok := len(reply)%2 == 1
		if ok {
			a.plain, ok = reply[0].(int64)
			a.odd = reply[1:]
		}
		if !ok {
			return a, ErrBadReply
		}
	default:
		return a, ErrBadReply
	}
	return a, nil
}

// Next is the answer to the next request, which is r.
func (a *Answers) Next(r Request) (Reply, error) {
	a.next++
	if len(a.odd) == 0 || a.odd[0] != any(a.next) {
		return r.plain(a.plain, a.memory)
	}
	text, ok := a.odd[1].(string)
	a.odd = a.odd[2:]
	switch {
	case !ok:
		return Reply{}, ErrBadReply
	case len(text) > 0 && text[0] == '-':
		return Reply{}, replyError(text[1:])
	}
	return r.Decode(text)
}

// plain is what a node says by its clock alone: it granted what was asked for.
func (r Request) plain(clock int64, memory string) (Reply, error) {
	v := Reply{Verdict: Granted, Clock: NodeMillis(clock), Expiry: NodeMillis(clock + r.lease.ms), Memory: memory}
	switch {
	case r.op == OpRelease && clock > 0:
		return Reply{Verdict: Granted}, nil
	case clock <= 1 || clock > maxNumber:
		return Reply{}, ErrBadReply
	case r.kind == plainRenew:
		return v, nil
	case r.kind == plainAcquire:
		own := packed{rest: string(r.own[:8])}
		v.Token = own.number()
		return v, nil
	}
	return Reply{}, ErrBadReply
}

// A replyError is what Redis answered to one request of a command.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (replyError) RedisError() {}
