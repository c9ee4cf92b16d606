package wire

// The requests of operators and of start-up checks.

// Provision returns a request that claims a node, and reports its state. If found is the claim that an earlier
// request found, the node is declared new; found is NoMemory if the node is only to be claimed.
func (k *Keyspace) Provision(bucket int, claim, found string) Request {
	return Request{
		op:     OpProvision,
		script: provisionScript,
		lock:   &Lock{resource: k.Guard(bucket), id: claim},
		extra:  []any{found},
	}
}

// Mark returns a request that marks a node for an operator, before the longest lease in use is lowered.
func (k *Keyspace) Mark(bucket int, to Millis) Request {
	return k.lowerRequest(bucket, "mark", to, "")
}

// CheckMark returns a request that asks whether a node still has the mark that it returned to Mark.
func (k *Keyspace) CheckMark(bucket int, mark string) Request {
	return k.lowerRequest(bucket, "check", Millis{}, mark)
}

// Lower returns a request that lowers the longest lease in use, if the node still has the mark that it returned to
// Mark.
func (k *Keyspace) Lower(bucket int, to Millis, mark string) Request {
	return k.lowerRequest(bucket, "lower", to, mark)
}

// Unmark returns a request that removes any mark.
func (k *Keyspace) Unmark(bucket int) Request {
	return k.lowerRequest(bucket, "unmark", Millis{}, "")
}

func (k *Keyspace) lowerRequest(bucket int, step string, to Millis, mark string) Request {
	return Request{
		op:     OpLower,
		script: lowerScript,
		lock:   &Lock{resource: k.Guard(bucket)},
		extra:  []any{step, to.ms, mark},
	}
}

// Revoke returns a request that ends an attempt of another process. Its tombstone outlives any lease, with any
// options of its holder: the holder may renew until a node rejects it, and renewals may be in flight.
func (l *Lock) Revoke(h *Preamble) Request {
	return Request{
		op:     OpRevoke,
		script: revokeScript,
		lock:   l,
		extra:  []any{(2 * ExpirySlack).Milliseconds(), h.idle},
	}
}

// Forget returns a request that drops the completion record of a key, if the record has that token.
func (k *Keyspace) Forget(key string, token uint64) Request {
	return Request{
		op:     OpForget,
		script: forgetScript,
		lock:   &Lock{resource: k.Resource(key)},
		extra:  []any{token},
	}
}

// Probe returns a request that tries the rights that scripts need, on a server that has the keys of the bucket.
// [ParseRights] reads the reply.
func (k *Keyspace) Probe(bucket int, sharded bool) Request {
	publish := "publish"
	if sharded {
		publish = "spublish"
	}
	return Request{
		op:     OpProbe,
		script: probeScript,
		lock:   &Lock{resource: k.probeKey(bucket)},
		extra:  []any{publish, k.Channel(bucket, "").Name},
	}
}
