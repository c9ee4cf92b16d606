package core

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// So many node timeouts a slow server has for all that it is asked.
const patience = 10

// An examination asks one server, one request at a time, and has what it told.
type examination struct {
	NodeDiagnosis
	ctx       context.Context
	p         *policy
	keys      keyspace
	client    redis.UniversalClient
	buckets   []int // whose keys it has
	asCluster bool  // the client treats it as a Redis Cluster's
	silent    error // it has left a request unanswered: nothing more is asked

	info          serverInfo
	clocked       bool
	offset, exact time.Duration // its clock minus this machine's, to within so much
	maxLag        time.Duration // min-replicas-max-lag; -1 = not known
	guard         guardFacts    // of the guard record that it takes longest to vote by
	rights        rights        // that are denied
	refusal       error         // of writes
}

// examineNode examines the servers behind a client: one, or the masters of a Redis Cluster.
func examineNode(ctx context.Context, index int, client redis.UniversalClient, p *policy, keys keyspace) (all []*examination) {
	ctx, cancel := context.WithTimeout(ctx, patience*p.nodeTimeout)
	defer cancel()
	x := &examination{NodeDiagnosis: NodeDiagnosis{Node: index, Addr: addrOf(client)}, ctx: ctx, p: p, keys: keys, client: client, maxLag: -1}
	cluster := clusterOf(client)
	if cluster == nil {
		for b := range keys.Buckets() {
			x.buckets = append(x.buckets, b)
		}
		x.run()
		return []*examination{x}
	}
	all, x.Err = x.masters(cluster)
	if x.Err != nil {
		x.Reached = answered(x.Err)
		return []*examination{x}
	}
	var masters sync.WaitGroup
	for _, m := range all {
		masters.Go(m.run)
	}
	masters.Wait()
	return all
}

// masters are the servers of a Redis Cluster, each with the guard buckets whose keys it has.
func (x *examination) masters(cluster *redis.ClusterClient) (all []*examination, err error) {
	err = x.within(func(ctx context.Context) error {
		var found []*examination
		for b := range x.keys.Buckets() {
			client, err := cluster.MasterForKey(ctx, x.keys.Guard(b))
			if err != nil {
				return err
			}
			i := slices.IndexFunc(found, func(m *examination) bool { return m.client == client })
			if i < 0 {
				i, found = len(found), append(found, &examination{NodeDiagnosis: NodeDiagnosis{Node: x.Node, Addr: addrOf(client)},
					ctx: x.ctx, p: x.p, keys: x.keys, client: client, asCluster: true, maxLag: -1})
			}
			found[i].buckets = append(found[i].buckets, b)
		}
		all = found
		return nil
	})
	if err != nil {
		return nil, err // what comes later is not looked at
	}
	return all, nil
}

// within waits for f, but not for longer than the node timeout. What f leaves behind is read only where the error is nil.
func (x *examination) within(f func(context.Context) error) (err error) {
	if x.silent != nil {
		return x.silent
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
	if timeUp(err) {
		err = errNodeTimeout
	}
	return err
}

// ask sends a command. Its value is to be read only where the error is nil.
func (x *examination) ask(cmd redis.Cmder) error {
	err := x.within(func(ctx context.Context) error { return x.client.Process(ctx, onceAny{cmd}) })
	if !answered(err) {
		x.silent = err
	}
	return err
}

// run finds out all that the server tells.
func (x *examination) run() {
	info := redis.NewStringCmd(x.ctx, "info")
	err := x.ask(info)
	x.Reached = answered(err)
	switch {
	case err == nil:
		x.info = parseInfo(info.Val())
	case !mayNot(err):
		x.Err = err
		return
	}
	if x.info.mode() == "sentinel" || x.info.mode() == "cluster" && !x.asCluster {
		return // it is no node, whatever else it tells
	}
	x.lookAtClock()
	lag := redis.NewMapStringStringCmd(x.ctx, "config", "get", "min-replicas-max-lag")
	if x.ask(lag) == nil {
		x.maxLag = time.Duration(number(lag.Val()["min-replicas-max-lag"])) * time.Second
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
		x.clocked, x.offset = true, nodeTimeOf(cmd.Val()).skew(sent.Add(x.exact))
	}
}

// tryRights tries all that lockkit calls. A replica takes no writes, but says what it would deny.
func (x *examination) tryRights() {
	publish, bucket := "publish", x.buckets[0]
	if x.asCluster {
		publish = "spublish"
	}
	channel := x.keys.Channel(bucket, "")
	cmd := redis.NewStringCmd(x.ctx, probeScript.inFull(append(probeScript.args(2, x.keys.Probe(bucket)), publish, channel))...)
	switch err := x.ask(cmd); {
	case err == nil:
		x.rights = parseRights(cmd.Val())
	case mayNot(err) && strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), " key"):
		x.rights.key = true
	case mayNot(err):
		x.rights.commands = []string{"eval"}
	default:
		return
	}
	if x.info == nil {
		x.rights.commands = append(x.rights.commands, "info")
	}
	var listening rights // on a connection of its own, so its silence says nothing
	err := x.within(func(ctx context.Context) error {
		return listening.tryListening(ctx, x.client, x.asCluster, channel, x.p.nodeTimeout)
	})
	if err == nil {
		x.rights.commands = append(x.rights.commands, listening.commands...)
		x.rights.channel = x.rights.channel || listening.channel
	}
}

// lookAtGuard reads the guard records.
func (x *examination) lookAtGuard() {
	if !x.p.guarded || x.info["master_replid"] == "" {
		return
	}
	records := make([]redis.Cmder, len(x.buckets))
	for i, b := range x.buckets {
		records[i] = askGuard(x.ctx, x.keys.Guard(b))
	}
	err := x.within(func(ctx context.Context) error {
		pipelined(ctx, x.client, records)
		return records[0].Err() // if it is not answered, none is
	})
	if !answered(err) {
		x.silent = err
		return
	}
	for _, cmd := range records {
		if g := x.p.readGuard(cmd.(*redis.SliceCmd).Val(), x.info["master_replid"], nodeTimeOf(time.Now().Add(x.offset))); g.state > x.guard.state || g.state == x.guard.state && g.left > x.guard.left {
			x.guard = g
		}
	}
}

// tryWrites finds out whether the server takes what every lock is. Without the guard, so that it begins no quarantine;
// without the clock window, so that it is not refused for another reason.
func (x *examination) tryWrites() {
	probe := x.keys.Probe(x.buckets[0])
	args := append(touchScript.args(8, probe, probe), "-", unstamped)
	args = append(append(args, 0), x.p.static[1:]...)
	err := x.ask(redis.NewStringCmd(x.ctx, args...))
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = x.ask(redis.NewStringCmd(x.ctx, touchScript.inFull(args)...))
	}
	switch {
	case err == nil || !answered(err):
	case !mayNot(err):
		x.refusal = err
	case strings.Contains(err.Error(), "evalsha"):
		x.rights.commands = append(x.rights.commands, "evalsha")
	}
}
