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

// MaxExaminationTimeouts is the number of node timeouts that one examination may take.
const MaxExaminationTimeouts = 10

// An Examination collects facts about one server, one request at a time. Only one goroutine uses it.
type Examination struct {
	Node    int // index in the list of nodes
	Addr    string
	Reached bool  // the server answered, even if with an error
	Err     error // why the examination is incomplete
	Flaws   []Flaw

	ctx            context.Context
	Conf           *Config
	keys           *wire.Keyspace
	client         redis.UniversalClient
	buckets        []int // whose keys the server has
	asCluster      bool  // the client treats the server as part of a Redis Cluster
	waitsForClient bool  // for each call, however long the client takes; else a call ends after the node timeout
	noAnswer       error // a request was not answered, so no more are sent

	Info         serverInfo
	Clock        ClockReading
	MaxLag       time.Duration // min-replicas-max-lag; -1 if unknown
	Guard        wire.Guard    // the guard record that delays voting most
	Longest      LongestTTL
	deniedRights wire.Rights
	WriteRefusal error // the answer to a write that failed for any reason except a denied right
}

// A LongestTTL is the longest max TTL in the guard records of a server.
type LongestTTL struct {
	TTL time.Duration // 0 if the records name none
	Age time.Duration // since it was first named
}

// exceeds reports whether l is longer than other or, if both are equal, older.
func (l LongestTTL) exceeds(other LongestTTL) bool {
	if l.TTL != other.TTL {
		return l.TTL > other.TTL
	}
	return l.Age > other.Age
}

// A ClockReading compares the clock of a server with the clock of this machine.
type ClockReading struct {
	Known    bool          // the server was asked, and has answered
	Offset   time.Duration // the server's clock minus this machine's
	MaxError time.Duration // the largest possible error of Offset
}

// newExamination returns the examination of a server that has the keys of all buckets.
func newExamination(
	ctx context.Context, index int, client redis.UniversalClient, conf *Config, keys *wire.Keyspace,
) *Examination {
	x := &Examination{
		Node:      index,
		Addr:      goredis.AddrOf(client),
		ctx:       ctx,
		Conf:      conf,
		keys:      keys,
		client:    client,
		asCluster: goredis.ClusterOf(client) != nil,
		MaxLag:    -1,
	}
	for b := range keys.Buckets() {
		x.buckets = append(x.buckets, b)
	}
	return x
}

// Examine examines the servers behind a client: a single one, or the masters of a Redis Cluster.
func Examine(
	ctx context.Context, index int, client redis.UniversalClient, conf *Config, keys *wire.Keyspace,
) (all []*Examination) {
	ctx, cancel := context.WithTimeout(ctx, MaxExaminationTimeouts*conf.Timeout)
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

	// Each master is examined once, with the buckets whose keys it has.
	for b, master := range masters {
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

// run collects all facts.
func (x *Examination) run() {
	x.Err = x.readInfo()
	x.Reached = goredis.Answered(x.Err)
	if x.Err != nil {
		return
	}

	// The server cannot be a node, so nothing else about it matters.
	if x.Info.isOtherKind(x.asCluster) {
		return
	}

	x.readClock()
	x.readMaxLag()
	x.tryRights()
	x.readGuards()
	x.tryWrites()
	x.Err = x.noAnswer
}

// within runs f and returns its error. Unless the examination waits for clients, it returns ErrNoAnswer if f takes
// longer than the node timeout or fails with a timeout of its context. f may then still be running, so its results may
// be read only if the error is nil.
func (x *Examination) within(f func(context.Context) error) error {
	if x.noAnswer != nil {
		return x.noAnswer
	}
	if x.waitsForClient {
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

// ask calls within. After a request that was not answered, no more are sent.
func (x *Examination) ask(f func(context.Context) error) error {
	err := x.within(f)
	if !goredis.Answered(err) {
		x.noAnswer = err
	}
	return err
}

// do sends a command. Its value may be read only if the error is nil.
func (x *Examination) do(cmd redis.Cmder) error {
	return x.ask(func(ctx context.Context) error {
		return goredis.Do(ctx, x.client, goredis.OnceAny{Cmder: cmd})
	})
}

// call returns the call of a script. It has no clock window, so that a wrong clock is not a reason to refuse it.
func (x *Examination) call(r wire.Request) wire.Call {
	head := wire.NewPreamble(0, x.Conf.MaxTTL, x.Conf.Lag)
	return head.Encode(1, wire.Repeat(r), wire.NoMemory, time.Now())
}

// readInfo reads INFO, unless the user has no right to it.
func (x *Examination) readInfo() error {
	info := redis.NewStringCmd(x.ctx, "info")
	err := x.do(info)
	switch {
	case err == nil:
		x.Info = ParseInfo(info.Val())
	case goredis.IsDenied(err):
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

	// The server is assumed to read its clock halfway.
	half := time.Since(sent) / 2
	offset := wire.NodeTimeOf(clock.Val()).Skew(sent.Add(half))
	x.Clock = ClockReading{Known: true, Offset: offset, MaxError: half}
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

// readGuards finds the guard record that delays voting most, and the longest max TTL of all records.
func (x *Examination) readGuards() {
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

// votesLater reports whether guard record g delays voting more than another one.
func votesLater(g, other wire.Guard) bool {
	if g.State != other.State {
		return g.State > other.State
	}
	return g.Remaining > other.Remaining
}

// A guardText is a guard record, and the note beside it; "" stands for none.
type guardText struct{ record, note string }

// guards returns the guard records that the server shows, or none if it does not answer.
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
		return cmds[0].Err() // if the first command is not answered, none is
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

// tryWrites checks that the server accepts a lock's write. It skips the guard, so no quarantine starts.
func (x *Examination) tryWrites() {
	touch := wire.NewKeyspace(x.Conf.Prefix, x.keys.Buckets(), false).Touch(x.buckets[0])
	call := x.call(touch)
	err := x.ask(func(ctx context.Context) error {
		reply, err := runScript(ctx, x.client, call)
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
	case !goredis.IsDenied(err):
		x.WriteRefusal = err
	case strings.Contains(err.Error(), "evalsha"):
		x.deniedRights = append(x.deniedRights, "+evalsha")
	}
}

// AddFlaw adds a flaw.
func (x *Examination) AddFlaw(severity, code, what, mend string) {
	x.Flaws = append(x.Flaws, Flaw{severity, code, what, mend})
}

// AddFlaws adds the flaws that show in INFO, and reports whether the server cannot be a node at all.
func (x *Examination) AddFlaws() (out bool) {
	if x.Err != nil && x.Info == nil {
		x.addNoAnswer()
		return true
	}

	x.Flaws = append(x.Flaws, x.Info.flaws(x.Conf.Guarded, x.asCluster)...)
	out = slices.ContainsFunc(x.Flaws, func(f Flaw) bool { return f.Code == codeNoNode || f.Code == codeReplica })

	if !out && x.Err != nil {
		x.AddFlaw(severe, codeUnreachable, "stopped answering while it was examined: "+x.Err.Error(),
			"look at its load and at the network, and run this again")
		return true
	}
	return out
}

func (x *Examination) addNoAnswer() {
	code := codeUnreachable
	fix := "start the server, check its address, and what is between (firewall; TLS on one side only)"
	if x.Reached {
		code = codeRefused
		fix = "it may pass by itself (BUSY, LOADING); if it does not, look at the server's log"
	}

	known := goredis.TroubleOf(x.Err)
	x.AddFlaw(severe, cmp.Or(known.Kind, code), "does not answer: "+x.Err.Error(), cmp.Or(known.Fix, fix))
}
