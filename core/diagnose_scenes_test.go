package core

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/testutil"
)

// Each problem of a node gives exactly the findings that name it.
func TestDiagnose(t *testing.T) {
	type scene struct {
		breaks func(w *world, clients []redis.UniversalClient)
		want   []found
		says   []string
		opts   []Option
	}
	node := func(f func(*testutil.Node)) func(*world, []redis.UniversalClient) {
		return func(w *world, _ []redis.UniversalClient) { f(w.nodes[1]) }
	}
	refuse := func(command, err string) func(*world, []redis.UniversalClient) {
		return node(func(n *testutil.Node) { n.Refuse(command, err) })
	}
	info := func(line, by string) func(*world, []redis.UniversalClient) {
		return func(_ *world, clients []redis.UniversalClient) {
			clients[1].(*redis.Client).AddHook(rewriteInfo{line: line, by: by})
		}
	}
	fault := func(code string) []found { return []found{{"fault", code, 1}} }
	warning := func(code string) []found { return []found{{"warning", code, 1}} }
	risk := func(code string) []found { return []found{{"risk", code, 1}} }
	unguarded := []Option{WithRestartGuard(false)}
	bubbles(t, 3, map[string]scene{
		"down":           {breaks: node((*testutil.Node).Down), want: fault("unreachable"), says: []string{"connection refused", "start the server"}},
		"hung":           {breaks: node((*testutil.Node).Hang), want: fault("unreachable"), says: []string{"no answer within the node timeout"}},
		"wrong password": {breaks: refuse("INFO", "WRONGPASS invalid username-password pair"), want: fault("credentials"), says: []string{"user and password"}},
		"busy":           {breaks: refuse("INFO", "BUSY Redis is busy running a script."), want: fault("refused"), says: []string{"pass by itself"}},
		"database":       {breaks: refuse("INFO", "ERR DB index is out of range"), want: fault("refused"), says: []string{"a database that the server has"}},
		"no answer to scripts": {breaks: func(_ *world, clients []redis.UniversalClient) {
			clients[1].(*redis.Client).AddHook(deafTo("eval evalsha"))
		},
			want: fault("unreachable"), says: []string{"stopped answering"}},
		"Sentinel":   {breaks: info("redis_mode:standalone", "redis_mode:sentinel"), want: fault("no_node"), says: []string{"NewFailoverClient"}},
		"Cluster":    {breaks: info("redis_mode:standalone", "redis_mode:cluster"), want: fault("no_node"), says: []string{"ClusterClient"}},
		"replica":    {breaks: node(func(n *testutil.Node) { n.SetReplica(true) }), want: fault("replica"), says: []string{"master of its own"}},
		"evicting":   {breaks: node(func(n *testutil.Node) { n.SetEvictionPolicy("allkeys-lru", 1<<20) }), want: fault("evicting"), says: []string{"noeviction"}},
		"old":        {breaks: node(func(n *testutil.Node) { n.SetVersion("6.0.16") }), want: fault("too_old"), says: []string{"6.2.7"}},
		"no history": {breaks: info("master_replid:", "x:"), want: fault("no_node")},
		"listed twice": {breaks: func(w *world, clients []redis.UniversalClient) { clients[1] = w.nodes[0].Client() },
			want: fault("same_server"), says: []string{"same server as node 0"}},

		"clock ahead":            {breaks: node(func(n *testutil.Node) { n.StepClock(time.Second) }), want: fault("clock_off"), says: []string{"off by 1s", "NTP"}},
		"clock behind":           {breaks: node(func(n *testutil.Node) { n.StepClock(-time.Second) }), want: fault("clock_off")},
		"clock within":           {breaks: node(func(n *testutil.Node) { n.StepClock(200 * time.Millisecond) })},
		"clock without a window": {breaks: node(func(n *testutil.Node) { n.StepClock(time.Minute) }), opts: []Option{WithClockWindow(0)}},
		"clock of two": {breaks: func(w *world, _ []redis.UniversalClient) {
			w.nodes[0].StepClock(time.Second)
			w.nodes[1].StepClock(time.Second)
		}, want: []found{{"fault", "no_quorum", -1}, {"fault", "clock_off", 0}, {"fault", "clock_off", 1}}, says: []string{"or on this one"}},
		"clocks apart": {breaks: func(w *world, _ []redis.UniversalClient) {
			w.nodes[0].StepClock(200 * time.Millisecond)
			w.nodes[1].StepClock(-200 * time.Millisecond)
		}},
		"emptied":                {breaks: node((*testutil.Node).Flush), want: warning("quarantined"), says: []string{"10s after it is next asked"}},
		"emptied, and unguarded": {breaks: node((*testutil.Node).Flush), opts: unguarded},
		"promoted":               {breaks: node((*testutil.Node).Promote), want: warning("quarantined"), says: []string{"restarted or promoted"}},
		"first replica attached": {breaks: func(w *world, c []redis.UniversalClient) {
			w.nodes[1].Promote()
			info("connected_slaves:0", "connected_slaves:1")(w, c)
		}, want: append(risk("replica_lag"), warning("quarantined")...), says: []string{"first replica was attached"}},
		"all emptied":             {breaks: func(w *world, _ []redis.UniversalClient) { flushAll(w) }, want: []found{{"warning", "not_provisioned", -1}}, says: []string{"admin.Provision"}},
		"all emptied, long lease": {breaks: func(w *world, _ []redis.UniversalClient) { flushAll(w) }, opts: []Option{WithMaxTTL(time.Minute)}, want: []found{{"warning", "not_provisioned", -1}}, says: []string{"1m0s after they are first asked"}},
		"two nodes down": {breaks: func(w *world, _ []redis.UniversalClient) { w.nodes[0].Down(); w.nodes[1].Down() },
			want: []found{{"fault", "no_quorum", -1}, {"fault", "unreachable", 0}, {"fault", "unreachable", 1}}, says: []string{"1 of 3 nodes would vote"}},

		"a right missing": {breaks: refuse("EXISTS", "NOPERM this user has no permissions to run the 'exists' command"), want: fault("rights"), says: []string{"ACL SETUSER default +exists"}},
		"rights missing": {breaks: func(w *world, c []redis.UniversalClient) {
			refuse("GET", "NOPERM x")(w, c)
			refuse("ZADD", "NOPERM x")(w, c)
		}, want: fault("rights"), says: []string{"ACL SETUSER default +get +zadd"}},
		"right to wait": {breaks: refuse("ZRANK", "NOPERM this user has no permissions"), want: fault("rights"), says: []string{"ACL SETUSER default +zrank"}},
		"renamed":       {breaks: refuse("PEXPIRE", "ERR unknown command 'PEXPIRE'"), want: fault("rights"), says: []string{"pexpire"}},
		"no scripts": {breaks: func(w *world, c []redis.UniversalClient) {
			refuse("EVAL", "NOPERM x")(w, c)
			refuse("EVALSHA", "NOPERM this user has no permissions to run the 'evalsha' command")(w, c)
		}, want: fault("rights"), says: []string{"+eval +evalsha"}},
		"no EVALSHA":           {breaks: refuse("EVALSHA", "NOPERM this user has no permissions to run the 'evalsha' command"), want: fault("rights"), says: []string{"ACL SETUSER default +evalsha"}},
		"INFO denied":          {breaks: refuse("INFO", "NOPERM x"), want: fault("rights"), says: []string{"+info"}},
		"INFO denied, no need": {breaks: refuse("INFO", "NOPERM x"), opts: unguarded, want: warning("rights"), says: []string{"+info"}},
		"TIME denied":          {breaks: refuse("TIME", "NOPERM x"), want: fault("rights"), says: []string{"+time"}},
		"full":                 {breaks: refuse("SET", "OOM command not allowed when used memory > 'maxmemory'."), want: fault("writes_refused"), says: []string{"OOM", "raise maxmemory"}},
		"few replicas":         {breaks: refuse("SET", "NOREPLICAS Not enough good replicas to write."), want: fault("writes_refused"), says: []string{"bring its replicas back"}},
		"bad disk":             {breaks: refuse("SET", "MISCONF Redis is configured to save RDB snapshots"), want: fault("writes_refused"), says: []string{"disk"}},

		"no file":                {breaks: info("maxmemory:0", "maxmemory:0\r\naof_enabled:0"), opts: unguarded, want: risk("not_durable"), says: []string{"appendonly yes"}},
		"replicas, no lag":       {breaks: info("connected_slaves:0", "connected_slaves:1"), want: risk("replica_lag"), says: []string{"WithReplicaLag"}},
		"replicas, and a lag":    {breaks: info("connected_slaves:0", "connected_slaves:1\r\nmin_slaves_good_slaves:1"), opts: []Option{WithReplicaLag(time.Second)}},
		"serves without them":    {breaks: info("connected_slaves:0", "connected_slaves:1"), opts: []Option{WithReplicaLag(time.Second)}, want: risk("replica_lag"), says: []string{"min-replicas-to-write 1"}},
		"replicas, and no guard": {breaks: info("connected_slaves:0", "connected_slaves:1"), opts: unguarded, want: risk("unguarded")},
		"a slow node's clock":    {breaks: node(func(n *testutil.Node) { n.Slow(600 * time.Millisecond); n.StepClock(200 * time.Millisecond) })},
		"two faults of one node": {breaks: func(w *world, c []redis.UniversalClient) {
			w.nodes[1].SetEvictionPolicy("allkeys-lru", 1)
			w.nodes[1].SetVersion("5.0.0")
		}, want: append(fault("evicting"), fault("too_old")...)},
		"a fault hides no others": {breaks: func(w *world, c []redis.UniversalClient) { w.nodes[1].SetReplica(true); w.nodes[0].SetVersion("5.0.0") }, want: []found{{"fault", "no_quorum", -1}, {"fault", "too_old", 0}, {"fault", "replica", 1}}},
	}, func(t *testing.T, w *world, c scene) {
		w.process()
		clients := testutil.Clients(w.nodes)
		for _, c := range clients {
			c.Ping(t.Context()) // setting up a connection takes several requests
		}

		// The process's own first requests would begin a quarantine on a broken node, so they must be over first.
		synctest.Wait()
		c.breaks(w, clients)

		d := w.diagnoseClients(clients, c.opts...)
		wantFindings(t, d, c.want...)
		wantAdvice(t, d, c.says...)

		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(time.Minute) // until the clients give up requests that hang
	})
}

func flushAll(w *world) {
	for _, n := range w.nodes {
		n.Flush()
	}
}

// deafTo loses the requests of some commands.
type deafTo string

func (h deafTo) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h deafTo) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h deafTo) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(string(h), cmd.Name()) {
			return coretest.Unanswered(cmd, nil)
		}
		return next(ctx, cmd)
	}
}
