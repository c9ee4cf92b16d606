package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// How often a server is asked what one request takes, and what a script takes.
	timings       = 20
	scriptTimings = 5
	// So many node timeouts a slow server has for all that it is asked.
	patience = 10
)

// An examination asks one server, one request at a time.
type examination struct {
	ctx     context.Context
	p       *policy
	keys    keyspace
	client  redis.UniversalClient
	buckets []int // whose keys it has
	silent  error // it has left a request unanswered: nothing more is asked
	info    map[string]string

	NodeDiagnosis
}

// examineNode examines the servers behind a client: one, or the masters of a Redis Cluster.
func examineNode(ctx context.Context, index int, client redis.UniversalClient, p *policy, keys keyspace) (all []NodeDiagnosis) {
	ctx, cancel := context.WithTimeout(ctx, patience*p.nodeTimeout)
	defer cancel()
	x := &examination{ctx: ctx, p: p, keys: keys, client: client, NodeDiagnosis: unknownNode(index, addrOf(client))}
	cluster := clusterOf(client)
	if cluster == nil {
		for b := range keys.tags {
			x.buckets = append(x.buckets, b)
		}
		x.run()
		return []NodeDiagnosis{x.NodeDiagnosis}
	}
	masters, err := x.masters(cluster)
	if err != nil {
		x.Err, x.Reached = err, answered(err)
		return []NodeDiagnosis{x.NodeDiagnosis}
	}
	found := make([]chan NodeDiagnosis, len(masters))
	for i, m := range masters {
		found[i] = make(chan NodeDiagnosis, 1)
		m := &examination{ctx: ctx, p: p, keys: keys, client: m.client, buckets: m.buckets, NodeDiagnosis: unknownNode(index, addrOf(m.client))}
		m.asCluster = true
		go func() { m.run(); found[i] <- m.NodeDiagnosis }()
	}
	for i := range masters {
		all = append(all, <-found[i])
	}
	return all
}

// unknownNode is a server of which nothing is known.
func unknownNode(index int, addr string) NodeDiagnosis {
	return NodeDiagnosis{Node: index, Addr: addr, Uptime: -1, Guard: GuardFacts{Left: -1, Longest: -1}, Memory: MemoryFacts{Used: -1, Max: -1},
		Replication: ReplicationFacts{Replicas: -1, Behind: -1, MinToWrite: -1, MinMaxLag: -1, BacklogTTL: -1}, Cost: CostFacts{-1, -1, -1}}
}

// A clusterMaster is a server of a Redis Cluster, with the guard buckets whose keys it has.
type clusterMaster struct {
	client  *redis.Client
	buckets []int
}

func (x *examination) masters(cluster *redis.ClusterClient) (masters []clusterMaster, err error) {
	err = x.within(func(ctx context.Context) error {
		var found []clusterMaster
		for b := range x.keys.tags {
			m, err := cluster.MasterForKey(ctx, x.keys.guard(b))
			if err != nil {
				return err
			}
			i := slices.IndexFunc(found, func(other clusterMaster) bool { return other.client == m })
			if i < 0 {
				i, found = len(found), append(found, clusterMaster{client: m})
			}
			found[i].buckets = append(found[i].buckets, b)
		}
		masters = found
		return nil
	})
	if err != nil {
		return nil, err // what comes later is not looked at
	}
	return masters, nil
}

// within waits for f, but not for longer than the node timeout. What f leaves behind is read only where the error is nil.
func (x *examination) within(f func(context.Context) error) error {
	if x.silent != nil {
		return x.silent
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.p.nodeTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var err error
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

// onceAny is once for any command.
type onceAny struct{ redis.Cmder }

func (onceAny) NoRetry() bool { return true }

// ask sends a command. Its value is to be read only where the error is nil.
func (x *examination) ask(cmd redis.Cmder) error {
	return x.heard(x.within(func(ctx context.Context) error { return x.client.Process(ctx, onceAny{cmd}) }))
}

// heard notes that a server has left a request unanswered.
func (x *examination) heard(err error) error {
	if !answered(err) {
		x.silent = err
	}
	return err
}

// run finds out all that the server tells.
func (x *examination) run() {
	err := x.identify()
	x.Reached = answered(err)
	if err != nil && !mayNot(err) {
		x.Err = err
		return
	}
	if x.Mode == "sentinel" || x.Mode == "cluster" && !x.asCluster {
		return // it is no node, whatever else it tells
	}
	x.lookAtClock()
	x.configuration()
	x.tryRights()
	x.lookAtGuard()
	x.timeScript()
	if x.silent != nil {
		x.Err = x.silent
	}
}

func (x *examination) identify() error {
	cmd := redis.NewStringCmd(x.ctx, "info")
	err := x.heard(x.within(func(ctx context.Context) error { return x.client.Process(ctx, once{cmd}) }))
	if err != nil {
		return err
	}
	x.info = parseInfo(cmd.Val())
	x.id = identityOf(x.info)
	x.Mode, x.Role, x.Version, x.RunID = x.id.mode, x.id.role, x.id.version, x.id.runID
	x.Uptime = seconds(x.info["uptime_in_seconds"])
	x.Memory = MemoryFacts{number(x.info["used_memory"]), number(x.info["maxmemory"]), x.id.policy}
	x.Persistence.AOF = map[string]string{"0": "no", "1": "yes"}[x.info["aof_enabled"]]
	x.Replication.Replicas = int(number(x.info["connected_slaves"]))
	x.Replication.Recorded = x.info["repl_backlog_active"] == "1"
	for i := range x.Replication.Replicas {
		for field := range strings.SplitSeq(x.info[fmt.Sprint("slave", i)], ",") {
			if lag, ok := strings.CutPrefix(field, "lag="); ok {
				x.Replication.Behind = max(x.Replication.Behind, time.Duration(number(lag))*time.Second)
			}
		}
	}
	return nil
}

// number reads a number, -1 where there is none.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// seconds reads a number of seconds, -1 where there is none.
func seconds(text string) time.Duration {
	if s := number(text); s >= 0 {
		return time.Duration(s) * time.Second
	}
	return -1
}

// lookAtClock asks for the time, and for how long that takes.
func (x *examination) lookAtClock() {
	var took []time.Duration
	for begun := time.Now(); len(took) < timings && time.Since(begun) <= x.p.nodeTimeout; {
		cmd := redis.NewTimeCmd(x.ctx, "time")
		sent := time.Now()
		if x.ask(cmd) != nil {
			break
		}
		d := time.Since(sent)
		if len(took) == 0 || d/2 < x.Clock.Within {
			x.Clock = ClockFacts{true, cmd.Val().Sub(sent.Add(d / 2)), d / 2}
		}
		took = append(took, d)
	}
	if n := len(took); n > 0 {
		slices.Sort(took)
		x.Cost.P50, x.Cost.P99 = took[n/2], took[n*99/100]
	}
}

// configuration asks for what INFO does not tell.
func (x *examination) configuration() {
	get := func(name string) (value string, known bool) {
		cmd := redis.NewMapStringStringCmd(x.ctx, "config", "get", name)
		if x.ask(cmd) != nil {
			return "", false
		}
		value, known = cmd.Val()[name]
		return value, known
	}
	if save, known := get("save"); known {
		x.Persistence.Save = save
		if save == "" {
			x.Persistence.Save = "no"
		}
		x.Persistence.Fsync, _ = get("appendfsync")
		least, _ := get("min-replicas-to-write")
		x.Replication.MinToWrite = int(number(least))
		lag, _ := get("min-replicas-max-lag")
		x.Replication.MinMaxLag = seconds(lag)
		backlog, _ := get("repl-backlog-ttl")
		x.Replication.BacklogTTL = seconds(backlog)
	}
	// Of a primary that stops without its replicas, INFO tells how many are good: also to users who may not ask for settings.
	if _, stops := x.info["min_slaves_good_slaves"]; x.Replication.Replicas > 0 && !stops {
		x.Replication.MinToWrite = 0
	}
	whoami := redis.NewStringCmd(x.ctx, "acl", "whoami")
	if x.ask(whoami) == nil {
		x.Rights.User = whoami.Val()
	} else if c, ok := x.client.(interface{ Options() *redis.Options }); ok {
		x.Rights.User = c.Options().Username
	}
}

// lookAtGuard reads the guard records.
func (x *examination) lookAtGuard() {
	if !x.p.guarded {
		x.Guard.State = GuardOff
		return
	}
	if !x.id.historic {
		return
	}
	records, err := x.guardRecords()
	if err != nil {
		return
	}
	for _, cmd := range records {
		if len(cmd.Val()) != 5 {
			continue // what answers is no Redis
		}
		g, worst := x.guard(cmd.Val()), x.Guard
		longest := max(g.Longest, worst.Longest)
		if c := cmp.Compare(slices.Index(guardStates, g.State), slices.Index(guardStates, worst.State)); c > 0 || c == 0 && g.Left > worst.Left {
			worst = g
		}
		x.Guard, x.Guard.Longest = worst, longest
	}
}

// guardRecords asks for all guard records at once; for one, without a pipeline, which may need a connection of its own.
func (x *examination) guardRecords() (records []*redis.SliceCmd, err error) {
	for _, b := range x.buckets {
		records = append(records, redis.NewSliceCmd(x.ctx, "hmget", x.keys.guard(b), "h", "s", "m", "n", "v"))
	}
	if len(records) == 1 {
		return records, x.ask(records[0])
	}
	return records, x.heard(x.within(func(ctx context.Context) error {
		pipe := x.client.Pipeline()
		for _, cmd := range records {
			_ = pipe.Process(ctx, onceAny{cmd}) // Exec says it
		}
		_, err := pipe.Exec(ctx)
		return err
	}))
}

// guard reads a guard record, as head.lua does.
func (x *examination) guard(record []any) GuardFacts {
	var text [5]string
	for i, v := range record {
		text[i], _ = v.(string)
	}
	g := GuardFacts{State: GuardVoting, Longest: -1, Unused: text[3] != ""}
	longest := x.p.maxTTL
	if ms := number(text[2]); ms >= 0 && ms <= slack.Milliseconds() {
		g.Longest = time.Duration(ms) * time.Millisecond
		longest = max(longest, g.Longest)
	}
	since := number(text[1])
	switch {
	case text[0] == "":
		g.State, g.Left = GuardMissing, longest+x.p.lag
	case text[0] != x.info["master_replid"] || since < 0:
		g.State, g.Left = GuardChanged, longest+x.p.lag
	default:
		g.Since, g.Declared = time.UnixMilli(since), text[4] != ""
		if left := longest + x.p.lag - time.Now().Add(x.Clock.Offset).Sub(g.Since); left > 0 && !g.Declared {
			g.State, g.Left = GuardQuarantined, left
		}
	}
	return g
}

// timeScript finds out what a script takes, and whether the server takes writes. Without the guard, so that it begins no
// quarantine; without the clock window, so that it is not refused for another reason.
func (x *examination) timeScript() {
	probe := x.keys.probe(x.buckets[0])
	args := append(touchScript.args(7, probe, probe), "-", unstamped)
	args = append(append(args, 0), x.p.static[1:]...)
	least := time.Duration(-1)
	begun := time.Now()
	for i := 0; i <= scriptTimings && (i < 2 || time.Since(begun) <= x.p.nodeTimeout); i++ {
		cmd := redis.NewStringCmd(x.ctx, args...)
		sent := time.Now()
		err := x.ask(cmd)
		switch {
		case err == nil:
			if d := time.Since(sent); i > 0 && (least < 0 || d < least) { // the first time it may have to be loaded
				least = d
			}
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			if err = x.ask(redis.NewStringCmd(x.ctx, touchScript.inFull(args)...)); err == nil {
				continue
			}
		}
		if err != nil {
			x.refused(err)
			break
		}
	}
	if least >= 0 && x.Clock.Known {
		x.Cost.Script = max(0, least-2*x.Clock.Within)
	}
}
