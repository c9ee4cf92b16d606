package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scan yields what is stored under the key prefix, node by node: with pattern "" everything, with any other the locks and
// the queues of waiters whose key, as the user knows it, matches that glob of Redis (*, ?, [a-z]; \ takes the meaning from
// the next character). A pattern without *, ? and [ names one key,
// which is read without a scan, from all nodes at once. Scan changes nothing.
// Close waits for a step under way, and not for the loop.
//
// It is for people and tools: SCAN reads all names of the server's database, ours or not, in steps of 512, and each step
// is followed by short reads of what it found (PTTL, MEMORY USAGE, and the first KiB of a lock, the length of a queue or
// a field of the guard record). Each request has at most the node timeout. Nothing is read before the loop asks for
// it, so a slow loop costs the nodes nothing.
//
// What is promised is what SCAN promises: a key that is there from the beginning to the end of the loop is yielded at
// least once for each node that has it. It may come twice, a key that comes or goes meanwhile may be missed, and
// what was read may be over when it is yielded. In a Redis Cluster each master is scanned; what moves to another one
// meanwhile may be missed.
//
// A node that does not answer, or refuses, yields an error that names it and matches ErrUnavailable, with Found.Node, and
// the next node follows. The end of ctx, Close (ErrClosed) and bad arguments (ErrInvalid, ErrInvalidKey) end the loop after
// yielding their error.
func (l *Locker) Scan(ctx context.Context, pattern string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		key, single := literal(pattern)
		err := l.fit(ctx)
		if err == nil && single && pattern != "" {
			err = checkKey(key)
		}
		if err != nil {
			yield(Found{}, err)
			return
		}
		scans := make([]scan, len(l.e.nodes))
		for i, n := range l.e.nodes {
			scans[i] = scan{l: l, ctx: ctx, n: n, yield: yield}
		}
		if pattern != "" && single {
			scanKey(scans, key)
			return
		}
		for i := range scans {
			if scans[i].all(l.e.keys.patterns(pattern)); scans[i].over {
				return
			}
		}
	}
}

const (
	scanStep = 512  // names that a server looks at for one SCAN, and keys that are read in one request
	scanRead = 1024 // bytes of a lock: all but the result of its record
)

// A scan is a loop over what one node has.
type scan struct {
	l     *Locker
	ctx   context.Context
	n     *node
	yield func(Found, error) bool
	over  bool // the loop has ended
}

// scanKey reads what there is of a key, from all nodes at once, so that they tell of the same moment.
func scanKey(scans []scan, key string) {
	found, errs := make([][]Found, len(scans)), make([]error, len(scans))
	var all sync.WaitGroup
	for i := range scans {
		all.Go(func() { found[i], errs[i] = scans[i].one(key) })
	}
	all.Wait() // for the node timeout at most
	for i := range scans {
		if errs[i] != nil {
			scans[i].failed(errs[i])
		}
		if scans[i].over || !scans[i].yielded(found[i]) {
			return
		}
	}
}

// one reads what there is of a key.
func (s *scan) one(key string) ([]Found, error) {
	return scanned(s, func(ctx context.Context) ([]Found, error) {
		keys, server := s.l.e.keys, s.n.client
		resource := keys.resource(key)
		if s.n.cluster != nil {
			master, err := s.n.cluster.MasterForKey(ctx, resource)
			if err != nil {
				return nil, err
			}
			server = master
		}
		return s.read(ctx, server, []string{resource, keys.tags[keys.bucket(key)] + "w:" + key})
	})
}

// all reads what matches, of each server.
func (s *scan) all(patterns []string) {
	servers, err := scanned(s, s.servers)
	if err != nil {
		s.failed(err)
		return
	}
	for _, server := range servers {
		for _, pattern := range patterns {
			if !s.walk(server, pattern) || s.over {
				break // the next server may answer
			}
		}
		if s.over {
			return
		}
	}
}

// servers are those that have a part of what the node has.
func (s *scan) servers(ctx context.Context) (servers []redis.UniversalClient, err error) {
	if s.n.cluster == nil {
		return []redis.UniversalClient{s.n.client}, nil
	}
	var mu sync.Mutex
	err = s.n.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, master)
		return nil
	})
	slices.SortFunc(servers, func(a, b redis.UniversalClient) int { return cmp.Compare(addrOf(a), addrOf(b)) })
	return servers, err
}

// walk goes through what matches on a server, and reports whether it came to the end.
func (s *scan) walk(server redis.UniversalClient, pattern string) bool {
	for cursor := uint64(0); ; {
		cmd, err := scanned(s, func(ctx context.Context) (*redis.ScanCmd, error) {
			cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanStep)
			return cmd, server.Process(ctx, onceScan{cmd})
		})
		if err != nil {
			s.failed(s.on(server, err))
			return false
		}
		var names []string
		names, cursor = cmd.Val()
		for part := range slices.Chunk(names, scanStep) {
			if !s.tell(server, part) {
				return false
			}
		}
		if cursor == 0 {
			return true
		}
	}
}

// on names the server of a Cluster that an error is of.
func (s *scan) on(server redis.UniversalClient, err error) error {
	if s.n.cluster == nil {
		return err
	}
	return fmt.Errorf("%s: %w", addrOf(server), err)
}

// tell yields what the names stand for, and reports whether there is more to do.
func (s *scan) tell(server redis.UniversalClient, names []string) bool {
	found, err := scanned(s, func(ctx context.Context) ([]Found, error) { return s.read(ctx, server, names) })
	if err != nil {
		s.failed(s.on(server, err))
		return false
	}
	return s.yielded(found)
}

// yielded yields what was found, and reports whether the loop goes on.
func (s *scan) yielded(found []Found) bool {
	for _, f := range found {
		if !s.yield(f, nil) {
			s.over = true
			return false
		}
	}
	return true
}

// failed yields an error: of this node, or of all.
func (s *scan) failed(err error) {
	f := Found{Node: s.n.index}
	switch {
	case s.ctx.Err() != nil:
		s.over = true
		s.yield(f, fmt.Errorf("lockkit: scan: %w", context.Cause(s.ctx)))
	case errors.Is(err, ErrClosed):
		s.over = true
		s.yield(f, fmt.Errorf("lockkit: scan: %w", err))
	case timeUp(err): // a timeout of the client's, which must not be taken for the caller's
		s.over = !s.yield(f, fmt.Errorf("lockkit: scan: %w: %v: %v", ErrUnavailable, s.n, err)) //nolint:errorlint // its text only
	default:
		s.over = !s.yield(f, fmt.Errorf("lockkit: scan: %w: %v: %w", ErrUnavailable, s.n, err))
	}
}

// scanned is what ask returns within the node timeout.
func scanned[T any](s *scan, ask func(context.Context) (T, error)) (got T, err error) {
	e, timeout := s.l.e, s.l.p.nodeTimeout
	if s.ctx.Err() != nil {
		return got, context.Cause(s.ctx)
	}
	if !e.begin(true) {
		return got, ErrClosed
	}
	defer e.end()
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	e.spawn(func() {
		got, err := ask(&nodeContext{s.ctx, time.Now().Add(timeout)})
		answers <- answer{got, err}
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.got, a.err
	case <-s.ctx.Done():
		return got, context.Cause(s.ctx)
	case <-timer.C:
		return got, errNodeTimeout
	}
}

// read reads what the names stand for, but for what is gone.
func (s *scan) read(ctx context.Context, server redis.UniversalClient, names []string) ([]Found, error) {
	reads := make([]scanRequest, len(names))
	at := redis.NewTimeCmd(ctx, "time")
	sent := time.Now()
	_, err := server.Pipelined(ctx, func(p redis.Pipeliner) error {
		errs := []error{p.Process(ctx, at)}
		for i, name := range names {
			reads[i].found.Node, reads[i].found.RedisKey = s.n.index, name
			reads[i].found.Kind, reads[i].found.Key = s.l.e.keys.kind(name)
			errs = append(errs, reads[i].add(ctx, p))
		}
		return errors.Join(errs...)
	})
	skew, latency := time.Until(at.Val()), time.Since(sent)
	if !answered(err) {
		return nil, err
	}
	if at.Err() != nil {
		return nil, at.Err()
	}
	found := make([]Found, 0, len(names))
	for i := range reads {
		there, err := reads[i].result(at.Val())
		if err != nil {
			return nil, err
		}
		if f := &reads[i].found; there {
			if f.Kind == FoundLock {
				f.State.Node, f.State.Addr, f.State.Latency, f.State.Skew = s.n.index, s.n.addr, latency, skew
			}
			found = append(found, *f)
		}
	}
	return found, nil
}

// A scanRequest is what is asked about a key.
type scanRequest struct {
	found Found
	ttl   *redis.IntCmd
	bytes *redis.IntCmd
	text  *redis.StringCmd // of a lock
	guard *redis.SliceCmd  // fields of the guard record
	count *redis.IntCmd    // of those who wait
}

type onceScan struct{ *redis.ScanCmd }

func (onceScan) NoRetry() bool { return true }

func (r *scanRequest) add(ctx context.Context, p redis.Pipeliner) error {
	name := r.found.RedisKey
	r.text = redis.NewStringCmd(ctx, "getrange", name, 0, scanRead-1)
	r.ttl, r.bytes = redis.NewIntCmd(ctx, "pttl", name), redis.NewIntCmd(ctx, "memory", "usage", name)
	errs := make([]error, 0, 3)
	switch r.found.Kind {
	case FoundLock:
		errs = append(errs, p.Process(ctx, once{r.text}))
	case FoundWaiters:
		r.count = redis.NewIntCmd(ctx, "zcard", name)
		errs = append(errs, p.Process(ctx, r.count))
	case FoundGuard:
		r.guard = redis.NewSliceCmd(ctx, "hmget", name, "m") // for which services have the right
		errs = append(errs, p.Process(ctx, r.guard))
	case FoundTombstone, FoundProbe, FoundForeign: // there is no more to know
	}
	return errors.Join(append(errs, p.Process(ctx, r.ttl), p.Process(ctx, r.bytes))...)
}

// result is what was answered; there is false where the key is gone, expired or moved. An error is the node's: it
// refuses the command.
func (r *scanRequest) result(clock time.Time) (there bool, err error) {
	f := &r.found
	switch err := r.ttl.Err(); {
	case redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"): // to another server of the Cluster
		return false, nil
	case err != nil:
		return false, err
	}
	// Not the commands' own durations: those of a Redis key are whole milliseconds, and -1 and -2 are none.
	switch ms := r.ttl.Val(); ms {
	case -2:
		return false, nil
	case -1:
		f.TTL = -1
	default:
		f.TTL = time.Duration(ms) * time.Millisecond
	}
	f.Bytes = r.bytes.Val() // 0 where it is denied
	switch f.Kind {
	case FoundLock:
		return true, r.lock(clock)
	case FoundWaiters:
		if err := r.count.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return false, err
		}
		f.Waiters = int(r.count.Val())
	case FoundGuard:
		if err := r.guard.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return false, err
		}
		f.MaxTTL = longestOf(r.guard.Val())
	case FoundTombstone, FoundProbe, FoundForeign:
	}
	return true, nil
}

// lock judges what is stored for a key, as Inspect does.
func (r *scanRequest) lock(clock time.Time) error {
	state := &r.found.State
	err := r.text.Err()
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	var stored stored
	if err == nil {
		stored, err = parseStored(r.text.Val())
	}
	if err != nil {
		state.Verdict, state.Err = VerdictFailed, err
		return nil
	}
	state.judge(stored, clock)
	if state.Record != nil {
		state.Record = &Record{Token: state.Record.Token} // whether its result is complete is not known
	}
	return nil
}
