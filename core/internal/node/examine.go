package node

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/stall"
)

// So many node timeouts a slow server has for all that it is asked.
const Patience = 10

// An Examination asks one server, one request at a time, and has what it told.
type Examination struct {
	Node    int // index in the list of nodes
	Addr    string
	Reached bool  // it answered, be it with an error
	Err     error // why nothing is known of it, or not all
	Flaws   []Flaw

	ctx       context.Context
	Conf      *Config
	keys      *wire.Keyspace
	client    redis.UniversalClient
	buckets   []int // whose keys it has
	asCluster bool  // the client treats it as a Redis Cluster's
	waits     bool  // for its client, however long that takes; else for a node timeout
	silent    error // it has left a request unanswered: nothing more is asked

	Info    serverInfo
	Clock   ClockReading
	MaxLag  time.Duration // min-replicas-max-lag; -1 = not known
	Guard   wire.Guard    // of the guard record that it takes longest to vote by
	Longest LongestTTL
	rights  wire.Rights // that it denies
	Refusal error       // of writes, unless that is a right
}

// A LongestTTL is the longest max TTL that the guard records of a server name.
type LongestTTL struct {
	TTL time.Duration // 0 if they name none
	Age time.Duration // how long ago it was first named
}

func (l LongestTTL) exceeds(other LongestTTL) bool {
	if l.TTL != other.TTL {
		return l.TTL > other.TTL
	}
	return l.Age > other.Age
}

// A ClockReading tells how far the clock of a server is from the clock of this machine.
type ClockReading struct {
	Known  bool          // the server was asked, and has answered
	Offset time.Duration // the server's clock minus this machine's
	Exact  time.Duration // by how much Offset may be wrong
}

// newExamination is one of a server that has the keys of all buckets.
func newExamination(ctx context.Context, index int, client redis.UniversalClient, conf *Config, keys *wire.Keyspace) *Examination {
	x := &Examination{Node: index, Addr: goredis.AddrOf(client), ctx: ctx, Conf: conf, keys: keys, client: client, asCluster: goredis.ClusterOf(client) != nil, MaxLag: -1}
	for b := range keys.Buckets() {
		x.buckets = append(x.buckets, b)
	}
	return x
}

// Examine examines the servers behind a client: one, or the masters of a Redis Cluster.
func Examine(ctx context.Context, index int, client redis.UniversalClient, conf *Config, keys *wire.Keyspace) (all []*Examination) {
	ctx, cancel := context.WithTimeout(ctx, Patience*conf.Timeout)
	defer cancel()
	x := newExamination(ctx, index, client, conf, keys)
	cluster := goredis.ClusterOf(client)
	if cluster == nil {
		x.run()
		return []*Examination{x}
	}
	masters := make([]*redis.Client, keys.Buckets())
	x.Err = x.within(func(ctx context.Context) error {
		for b := range masters {
			master, err := cluster.MasterFor(ctx, keys.Guard(b))
			if err != nil {
				return err
			}
			masters[b] = master
		}
		return nil
	})
	x.Reached = goredis.Answered(x.Err)
	if x.Err != nil {
		return []*Examination{x}
	}
	for b, master := range masters { // each has the guard buckets whose keys it has
		i := slices.IndexFunc(all, func(m *Examination) bool { return m.client == master })
		if i < 0 {
			m := newExamination(ctx, index, master, conf, keys)
			m.asCluster = true
			m.buckets = nil
			i = len(all)
			all = append(all, m)
		}
		all[i].buckets = append(all[i].buckets, b)
	}
	var runs sync.WaitGroup
	for _, m := range all {
		runs.Go(m.run)
	}
	runs.Wait()
	return all
}

// run finds out all that the server tells.
func (x *Examination) run() {
	x.Err = x.lookAtInfo()
	x.Reached = goredis.Answered(x.Err)
	if x.Err != nil {
		return
	}
	if x.Info.isOtherKind(x.asCluster) {
		return // it is no node, whatever else it tells
	}
	x.readClock()
	x.readMaxLag()
	x.tryRights()
	x.lookAtGuard()
	x.tryWrites()
	x.Err = x.silent
}

// within waits for f; where the examination does not wait for clients, no longer than the node timeout. What f leaves
// behind is read only where the error is nil.
func (x *Examination) within(f func(context.Context) error) error {
	if x.silent != nil {
		return x.silent
	}
	if x.waits {
		return f(x.ctx)
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.Conf.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		stall.At(stall.Start, stall.Anywhere, x)
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		if !goredis.TimedOut(err) {
			return err
		}
	case <-ctx.Done():
	}
	return ErrNoAnswer
}

// ask is within, and notes a silence.
func (x *Examination) ask(f func(context.Context) error) error {
	err := x.within(f)
	if !goredis.Answered(err) {
		x.silent = err
	}
	return err
}

// do sends a command. Its value is to be read only where the error is nil.
func (x *Examination) do(cmd redis.Cmder) error {
	return x.ask(func(ctx context.Context) error { return goredis.Do(ctx, x.client, goredis.OnceAny{Cmder: cmd}) })
}

// call is a request without the clock window, so that it is not refused for that.
func (x *Examination) call(r wire.Request) wire.Call {
	head := wire.NewHead(0, x.Conf.MaxTTL, x.Conf.Lag)
	return head.Encode(1, wire.One(r), wire.NoMemory, time.Now())
}

// lookAtInfo reads what the server says of itself, unless its user may not ask.
func (x *Examination) lookAtInfo() error {
	info := redis.NewStringCmd(x.ctx, "info")
	err := x.do(info)
	switch {
	case err == nil:
		x.Info = ParseInfo(info.Val())
	case goredis.Denied(err):
		return nil
	}
	return err
}

func (x *Examination) readClock() {
	clock := redis.NewTimeCmd(x.ctx, "time")
	sent := time.Now()
	err := x.do(clock)
	if err != nil {
		return
	}
	half := time.Since(sent) / 2
	offset := wire.NodeTimeOf(clock.Val()).Skew(sent.Add(half))
	x.Clock = ClockReading{Known: true, Offset: offset, Exact: half}
}

func (x *Examination) readMaxLag() {
	const name = "min-replicas-max-lag"
	reply := redis.NewMapStringStringCmd(x.ctx, "config", "get", name)
	err := x.do(reply)
	if err != nil {
		return
	}
	seconds, err := strconv.Atoi(reply.Val()[name])
	if err == nil {
		x.MaxLag = time.Duration(seconds) * time.Second
	}
}

// lookAtGuard finds the guard record that it takes longest to vote by.
func (x *Examination) lookAtGuard() {
	history := x.Info["master_replid"]
	if !x.Conf.Guarded || history == "" {
		return
	}
	now := wire.NodeTimeOf(time.Now().Add(x.Clock.Offset))
	for _, text := range x.guards() {
		g := wire.ParseGuard(text.record, history, now, x.Conf.MaxTTL, x.Conf.Lag)
		if votesLater(g, x.Guard) {
			x.Guard = g
		}
		age := max(0, now.Since(wire.LongestSince(text.record, text.note)))
		longest := LongestTTL{TTL: wire.LongestOf(text.record), Age: age}
		if longest.exceeds(x.Longest) {
			x.Longest = longest
		}
	}
}

func votesLater(g, than wire.Guard) bool {
	if g.State != than.State {
		return g.State > than.State
	}
	return g.Left > than.Left
}

// A guardText is a guard record, and the note beside it; "" = there is none.
type guardText struct{ record, note string }

// guards are the guard records that the server shows; none where it does not answer.
func (x *Examination) guards() (shown []guardText) {
	cmds := make([]redis.Cmder, len(x.buckets))
	for i, b := range x.buckets {
		cmds[i] = redis.NewSliceCmd(x.ctx, x.keys.GuardsQuery(b)...)
	}
	err := x.ask(func(ctx context.Context) error {
		err := goredis.Pipeline(ctx, x.client, cmds)
		if err != nil {
			return err
		}
		return cmds[0].Err() // if it is not answered, none is
	})
	if !goredis.Answered(err) {
		return nil
	}
	for _, cmd := range cmds {
		texts := cmd.(*redis.SliceCmd).Val()
		if cmd.Err() != nil || len(texts) != 2 {
			continue
		}
		record, _ := texts[0].(string)
		note, _ := texts[1].(string)
		shown = append(shown, guardText{record, note})
	}
	return shown
}

// tryWrites finds out whether the server takes what every lock is. Without the guard, so that it begins no quarantine.
func (x *Examination) tryWrites() {
	touch := wire.NewKeyspace(x.Conf.Prefix, x.keys.Buckets(), false).Touch(x.buckets[0])
	call := x.call(touch)
	err := x.ask(func(ctx context.Context) error {
		reply, err := run(ctx, x.client, call)
		if err != nil {
			return err
		}
		answers, err := call.Answers(reply)
		if err != nil {
			return err
		}
		_, err = answers.Next(touch)
		return err
	})
	switch {
	case !goredis.Answered(err):
	case !goredis.Denied(err):
		x.Refusal = err
	case strings.Contains(err.Error(), "evalsha"):
		x.rights = append(x.rights, "+evalsha")
	}
}

// Add notes a flaw.
func (x *Examination) Add(severity, code, what, mend string) {
	x.Flaws = append(x.Flaws, Flaw{severity, code, what, mend})
}

// Outside reports whether a server cannot be a node, whatever else is to be said of it.
func (x *Examination) Outside() (out bool) {
	if x.Err != nil && x.Info == nil {
		x.addSilence()
		return true
	}
	x.Flaws = append(x.Flaws, x.Info.unfit(x.Conf.Guarded, x.asCluster)...)
	out = slices.ContainsFunc(x.Flaws, func(f Flaw) bool { return f.Code == noNode || f.Code == isReplica })
	if !out && x.Err != nil {
		x.Add(severe, unreachable, "stopped answering while it was examined: "+x.Err.Error(), "look at its load and at the network, and run this again")
		return true
	}
	return out
}

func (x *Examination) addSilence() {
	code := unreachable
	mend := "start the server, check its address, and what is between (firewall; TLS on one side only)"
	if x.Reached {
		code = refused
		mend = "it may pass by itself (BUSY, LOADING); if it does not, look at the server's log"
	}
	known := goredis.TroubleOf(x.Err)
	x.Add(severe, cmp.Or(known.Kind, code), "does not answer: "+x.Err.Error(), cmp.Or(known.Mend, mend))
}
