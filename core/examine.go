package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// So many node timeouts a slow server has for all that it is asked.
const patience = 10

// An examination asks one server, one request at a time, and has what it told.
type examination struct {
	NodeDiagnosis
	ctx       context.Context
	p         *policy
	keys      *wire.Keyspace
	client    redis.UniversalClient
	buckets   []int // whose keys it has
	asCluster bool  // the client treats it as a Redis Cluster's
	waits     bool  // for its client, however long that takes; else for a node timeout
	silent    error // it has left a request unanswered: nothing more is asked

	info          serverInfo
	clocked       bool
	offset, exact time.Duration // its clock minus this machine's, to within so much
	maxLag        time.Duration // min-replicas-max-lag; -1 = not known
	guard         wire.Guard    // of the guard record that it takes longest to vote by
	rights        wire.Rights   // that it denies
	refusal       error         // of writes
}

// newExamination is one of a server that has the keys of all buckets.
func newExamination(ctx context.Context, client redis.UniversalClient, p *policy, keys *wire.Keyspace) *examination {
	x := &examination{ctx: ctx, p: p, keys: keys, client: client, asCluster: goredis.ClusterOf(client) != nil, maxLag: -1}
	for b := range keys.Buckets() {
		x.buckets = append(x.buckets, b)
	}
	return x
}

// examineNode examines the servers behind a client: one, or the masters of a Redis Cluster.
func examineNode(ctx context.Context, index int, client redis.UniversalClient, p *policy, keys *wire.Keyspace) (all []*examination) {
	ctx, cancel := context.WithTimeout(ctx, patience*p.nodeTimeout)
	defer cancel()
	x := newExamination(ctx, client, p, keys)
	x.Node, x.Addr = index, goredis.AddrOf(client)
	cluster := goredis.ClusterOf(client)
	if cluster == nil {
		x.run()
		return []*examination{x}
	}
	masters := make([]*redis.Client, keys.Buckets())
	x.Err = x.within(func(ctx context.Context) (err error) {
		for b := 0; b < len(masters) && err == nil; b++ {
			masters[b], err = cluster.MasterForKey(ctx, keys.Guard(b))
		}
		return err
	})
	if x.Reached = goredis.Answered(x.Err); x.Err != nil {
		return []*examination{x}
	}
	for b, master := range masters { // each has the guard buckets whose keys it has
		i := slices.IndexFunc(all, func(m *examination) bool { return m.client == master })
		if i < 0 {
			m := newExamination(ctx, master, p, keys)
			m.Node, m.Addr, m.asCluster, m.buckets = index, goredis.AddrOf(master), true, nil
			i, all = len(all), append(all, m)
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

// within waits for f; where the examination does not wait for clients, no longer than the node timeout. What f leaves
// behind is read only where the error is nil.
func (x *examination) within(f func(context.Context) error) (err error) {
	if x.silent != nil {
		return x.silent
	}
	if x.waits {
		return f(x.ctx)
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.p.nodeTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = errNodeTimeout
	}
	if goredis.TimedOut(err) {
		err = errNodeTimeout
	}
	return err
}

// ask sends a command. Its value is to be read only where the error is nil.
func (x *examination) ask(cmd redis.Cmder) error {
	err := x.within(func(ctx context.Context) error { return x.client.Process(ctx, goredis.OnceAny{Cmder: cmd}) })
	if !goredis.Answered(err) {
		x.silent = err
	}
	return err
}

// lookAtInfo reads what the server says of itself, unless its user may not ask.
func (x *examination) lookAtInfo() error {
	info := redis.NewStringCmd(x.ctx, "info")
	err := x.ask(info)
	if goredis.Denied(err) {
		return nil
	}
	if err == nil {
		x.info = parseInfo(info.Val())
	}
	return err
}

// run finds out all that the server tells.
func (x *examination) run() {
	x.Err = x.lookAtInfo()
	if x.Reached = goredis.Answered(x.Err); x.Err != nil {
		return
	}
	if x.info.mode() == "sentinel" || x.info.mode() == "cluster" && !x.asCluster {
		return // it is no node, whatever else it tells
	}
	x.lookAtClock()
	lag := redis.NewMapStringStringCmd(x.ctx, "config", "get", "min-replicas-max-lag")
	if x.ask(lag) == nil {
		if seconds, err := strconv.Atoi(lag.Val()["min-replicas-max-lag"]); err == nil {
			x.maxLag = time.Duration(seconds) * time.Second
		}
	}
	x.tryRights()
	x.lookAtGuard()
	x.tryWrites()
	x.Err = x.silent
}

// lookAtClock asks for the time.
func (x *examination) lookAtClock() {
	cmd, sent := redis.NewTimeCmd(x.ctx, "time"), time.Now()
	if x.ask(cmd) == nil {
		x.exact = time.Since(sent) / 2
		x.clocked, x.offset = true, wire.NodeTimeOf(cmd.Val()).Skew(sent.Add(x.exact))
	}
}

// probing tries what scripts call.
func (x *examination) probing() wire.Call {
	return x.head().Encode(x.keys.Probe(x.buckets[0], x.asCluster), time.Now())
}

// head is without the clock window, so that nothing is refused for that.
func (x *examination) head() *wire.Head { return wire.NewHead(0, x.p.maxTTL, x.p.lag) }

// tryRights tries all that lockkit calls. A replica takes no writes, but says what it would deny.
func (x *examination) tryRights() {
	cmd := redis.NewStringCmd(x.ctx, x.probing().InFull()...)
	var inScripts wire.Rights
	switch err := x.ask(cmd); {
	case err == nil:
		inScripts = wire.ParseRights(cmd.Val(), x.p.prefix)
	case goredis.Denied(err) && strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), " key"):
		inScripts = wire.Rights{"~" + x.p.prefix + "*"}
	case goredis.Denied(err):
		inScripts = wire.Rights{"+eval"}
	default:
		return
	}
	_ = x.denied(inScripts) // what cannot be told is not guessed
}

// denied books what scripts were denied, and what no script can find out: INFO, and whether the user may subscribe. The
// error is why that cannot be told.
func (x *examination) denied(inScripts wire.Rights) error {
	x.rights = inScripts
	if x.info == nil {
		x.rights = append(x.rights, "+info")
	}
	err := x.within(func(ctx context.Context) error { // on a connection of its own, so its silence says nothing
		deadline, _ := ctx.Deadline()
		pubsub, err := goredis.Subscribe(ctx, x.client, x.asCluster, x.keys.Channel(x.buckets[0], "").Name)
		if err == nil {
			_, err = pubsub.ReceiveTimeout(goredis.NotAnew, max(time.Until(deadline), time.Millisecond)) // 0 or less is for ever
		}
		pubsub.Close()
		return err
	})
	switch {
	case !goredis.Denied(err):
		return err
	case strings.Contains(err.Error(), "channel"):
		x.rights = append(x.rights, "&"+x.p.prefix+"*")
	case x.asCluster:
		x.rights = append(x.rights, "+ssubscribe")
	default:
		x.rights = append(x.rights, "+subscribe")
	}
	return nil
}

// lookAtGuard finds the guard record that it takes longest to vote by.
func (x *examination) lookAtGuard() {
	if !x.p.guarded || x.info["master_replid"] == "" {
		return
	}
	for _, record := range x.guards() {
		g := wire.ParseGuard(record, x.info["master_replid"], wire.NodeTimeOf(time.Now().Add(x.offset)), x.p.maxTTL, x.p.lag)
		if g.State > x.guard.State || g.State == x.guard.State && g.Left > x.guard.Left {
			x.guard = g
		}
	}
}

// guards are the guard records; none where the server does not answer.
func (x *examination) guards() (records [][]any) {
	cmds := make([]redis.Cmder, len(x.buckets))
	for i, b := range x.buckets {
		cmds[i] = redis.NewSliceCmd(x.ctx, x.keys.GuardQuery(b)...)
	}
	err := x.within(func(ctx context.Context) error {
		goredis.Pipeline(ctx, x.client, cmds)
		return cmds[0].Err() // if it is not answered, none is
	})
	if !goredis.Answered(err) {
		x.silent = err
		return nil
	}
	for _, cmd := range cmds {
		records = append(records, cmd.(*redis.SliceCmd).Val())
	}
	return records
}

// tryWrites finds out whether the server takes what every lock is. Without the guard, so that it begins no quarantine;
// without the clock window, so that it is not refused for another reason.
func (x *examination) tryWrites() {
	call := x.head().Encode(wire.NewKeyspace(x.p.prefix, x.keys.Buckets(), false).Touch(x.buckets[0]), time.Now())
	err := x.ask(redis.NewStringCmd(x.ctx, call.Args()...))
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = x.ask(redis.NewStringCmd(x.ctx, call.InFull()...))
	}
	switch {
	case err == nil || !goredis.Answered(err):
	case !goredis.Denied(err):
		x.refusal = err
	case strings.Contains(err.Error(), "evalsha"):
		x.rights = append(x.rights, "+evalsha")
	}
}

func (x *examination) add(severity Severity, code FindingCode, what, mend string) {
	x.Findings = append(x.Findings, Finding{severity, code, what, mend})
}

// outside reports whether a server cannot be a node, whatever else is to be said of it.
func (x *examination) outside() (out bool) {
	if x.Err != nil && x.info == nil {
		t, code, mend := goredis.TroubleOf(x.Err), CodeUnreachable, "start the server, check its address, and what is between (firewall; TLS on one side only)"
		if x.Reached {
			code, mend = CodeRefused, "it may pass by itself (BUSY, LOADING); if it does not, look at the server's log"
		}
		x.add(SeverityFault, cmp.Or(FindingCode(t.Kind), code), "does not answer: "+x.Err.Error(), cmp.Or(t.Mend, mend))
		return true
	}
	for _, f := range x.info.unfit(x.p.guarded, x.asCluster) {
		x.Findings = append(x.Findings, f)
		out = out || f.Code == CodeNoNode || f.Code == CodeReplica
	}
	if !out && x.Err != nil {
		x.add(SeverityFault, CodeUnreachable, "stopped answering while it was examined: "+x.Err.Error(), "look at its load and at the network, and run this again")
		return true
	}
	return out
}

func (x *examination) lacksRights() {
	user, rules := goredis.UserOf(x.client), x.rights.String()
	mend := fmt.Sprintf("add %s to its ACL, see docs/operations.md (+info is for the restart guard; +spublish and +ssubscribe "+
		"need Redis 7.0): ACL SETUSER %s %s", rules, user, rules)
	switch {
	case rules == "":
	case rules == "+info" && !x.p.guarded:
		x.add(SeverityWarning, CodeRights, "denies INFO: eviction, role, version, and servers that are listed twice go unnoticed", mend)
	default:
		x.add(SeverityFault, CodeRights, fmt.Sprintf("denies its user %s what nothing works without", user), mend)
	}
}
