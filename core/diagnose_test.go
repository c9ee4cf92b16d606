package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests run Diagnose on embedded nodes. realdiagnose_test.go has the tests that need real servers.

// A found is the part of a finding that tests compare.
type found struct {
	severity string
	code     string
	node     int
}

// brief returns all findings, the gravest first. Findings about all nodes have node -1.
func (d Diagnosis) brief() (all []found) {
	for _, f := range d.Findings {
		all = append(all, found{f.Severity, f.Code, -1})
	}
	for _, n := range d.Nodes {
		for _, f := range n.Findings {
			all = append(all, found{f.Severity, f.Code, n.Node})
		}
	}
	rank := func(f found) int { return strings.Index("fault risk warning", f.severity) }
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Or(rank(a)-rank(b), a.node-b.node) })
	return all
}

// all returns the findings themselves.
func (d Diagnosis) all() []Finding {
	all := slices.Clone(d.Findings)
	for _, n := range d.Nodes {
		all = append(all, n.Findings...)
	}
	return all
}

// wantFindings checks that these are all findings, and that each says what is wrong and what to do.
func wantFindings(t *testing.T, d Diagnosis, want ...found) {
	t.Helper()
	if got := d.brief(); !slices.Equal(got, want) {
		t.Errorf("findings are %v, want %v:\n%s", got, want, d.text())
	}
	for _, f := range d.all() {
		if f.What == "" || f.Fix == "" || strings.Contains(f.What+f.Fix, "\n") || !slices.Contains([]string{"fault", "risk", "warning"}, f.Severity) {
			t.Errorf("unfinished: %+v", f)
		}
	}
}

// text returns all findings as text.
func (d Diagnosis) text() string {
	var lines []string
	for _, f := range d.all() {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", f.Severity, f.What, f.Fix))
	}
	return strings.Join(lines, "\n")
}

// wantAdvice checks that the findings mention these parts.
func wantAdvice(t *testing.T, d Diagnosis, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(d.text(), part) {
			t.Errorf("nothing is said of %q:\n%s", part, d.text())
		}
	}
}

// diagnose runs Diagnose on the world's nodes.
func (w *world) diagnose(opts ...Option) Diagnosis {
	w.t.Helper()
	return w.diagnoseClients(testutil.Clients(w.nodes), opts...)
}

func (w *world) diagnoseClients(clients []redis.UniversalClient, opts ...Option) Diagnosis {
	w.t.Helper()
	d := must(Operators.Diagnose(w.t.Context(), clients, opts...))
	return d
}

// Healthy nodes in use give no finding, and are left as they were.
func TestDiagnoseHealthyNodes(t *testing.T) {
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		synctest.Wait() // the lease is on all nodes
		before := w.nodes[0].Keys()
		d := w.diagnose()
		wantFindings(t, d)
		for i, n := range d.Nodes {
			if n.Node != i || !n.Reached || n.Err != nil || n.Addr == "" {
				t.Errorf("%+v", n)
			}
		}
		if len(d.Nodes) != len(w.nodes) {
			t.Errorf("%+v", d)
		}
		if now := w.nodes[0].Keys(); !slices.Equal(now, before) {
			t.Errorf("keys %v, were %v", now, before)
		}
		w.release(lease)
	})
}

// Diagnose asks for all guard records of a Cluster together, and evaluates each of them.
func TestDiagnoseGuardsOfACluster(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := clusterOfOne(w.nodes[0])
		defer client.Close()
		l := must(New([]redis.UniversalClient{client}, WithRestartGuard(true), quietly))
		defer l.Close(over())
		succeeds(t, l.Provision(t.Context()))
		guard := l.e.Keys.Guard(wire.Buckets - 1)
		memory, rest, _ := strings.Cut(must(w.nodes[0].Exec("GET", guard)).(string), "! ")
		longest, _, _ := strings.Cut(rest, " ")
		w.nodes[0].Exec("SET", guard, memory+" "+longest)
		wantFindings(t, w.diagnoseClients([]redis.UniversalClient{client}, WithRestartGuard(true)), found{"warning", "quarantined", 0})
	})
}

// Diagnose begins no quarantine: Provision may still declare the nodes new afterwards.
func TestDiagnoseBeforeProvision(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		wantFindings(t, w.diagnose(), found{"warning", "not_provisioned", -1})
		for i, n := range w.nodes {
			if keys := n.Keys(); len(keys) > 0 {
				t.Errorf("node %d has %v", i, keys)
			}
		}
		p := w.stranger()
		p.links[2].Set(coretest.Fate{Refuse: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Provision(ctx); err == nil {
			t.Fatal("declared new without node 2")
		}
		wantFindings(t, w.diagnose(), found{"warning", "not_provisioned", -1})
		p.mend()
		succeeds(t, p.Provision(t.Context()))
		wantFindings(t, w.diagnose())
	})
}

// Diagnose shows how long a quarantine still lasts, and the quarantine ends then.
func TestDiagnoseQuarantine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithReplicaLag(3 * time.Second))
		time.Sleep(time.Minute)
		const ahead = 200 * time.Millisecond
		w.nodes[1].StepClock(ahead) // the quarantine counts by the node's clock, whichever process asks first
		w.nodes[1].Flush()
		succeeds(t, p.Ready(t.Context()))
		time.Sleep(2 * time.Second)
		d := w.diagnose(WithReplicaLag(3 * time.Second))
		wantFindings(t, d, found{"warning", "quarantined", 1})
		wantAdvice(t, d, "votes by itself in 11s")
		time.Sleep(11 * time.Second)
		wantFindings(t, w.diagnose(WithReplicaLag(3*time.Second)))
	})
}

// However many nodes hang, Diagnose takes few node timeouts, and it ends with its context.
func TestDiagnoseTakesItsTime(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		w.process()
		for _, n := range w.nodes {
			n.Hang()
		}
		start := time.Now()
		d := w.diagnose()
		wantBetween(t, "took", time.Since(start), 0, time.Second)
		if len(d.brief()) != 6 {
			t.Errorf("findings:\n%s", d.text())
		}

		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(300*time.Millisecond, func() { cancel(errGone) })
		start = time.Now()
		_, err := Operators.Diagnose(ctx, testutil.Clients(w.nodes))
		wantErr(t, err, context.Canceled)
		wantErr(t, err, errGone)
		wantBetween(t, "ended after", time.Since(start), 300*time.Millisecond, 300*time.Millisecond)

		for _, n := range w.nodes {
			n.Up()
		}

		clients := testutil.Clients(w.nodes)
		clients[3].(*redis.Client).AddHook(deafTo("eval evalsha"))
		start = time.Now()
		if d := w.diagnoseClients(clients); d.Nodes[3].Err == nil || !d.Nodes[3].Reached {
			t.Errorf("%+v", d.Nodes[3])
		}
		wantBetween(t, "with a node that leaves one request unanswered it took", time.Since(start), time.Second, time.Second)

		for _, n := range w.nodes {
			n.Slow(900 * time.Millisecond)
		}
		start = time.Now()
		w.diagnose()
		wantBetween(t, "slow nodes took", time.Since(start), 0, node.MaxExaminationTimeouts*time.Second)
		time.Sleep(time.Minute)
	})
}

func TestDiagnoseRefuses(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := w.nodes[0].Client()
		_, err := Operators.Diagnose(t.Context(), []redis.UniversalClient{client, nil, client}, TTL(-1))
		wantErr(t, err, ErrInvalid)
		wantInError(t, err, "TTL", "node 1: client is nil", "same client")
		var none context.Context
		_, err = Operators.Diagnose(none, []redis.UniversalClient{client})
		wantErr(t, err, ErrInvalid)
		_, err = Operators.Diagnose(t.Context(), nil)
		wantErr(t, err, ErrInvalid)
	})
}

// If New fails because of a node, for a reason that will not go away, Diagnose reports a fault of that node.
func TestDiagnoseAgreesWithNew(t *testing.T) {
	bubbles(t, 3, map[string]func(*testutil.Node){
		"replica":  func(n *testutil.Node) { n.SetReplica(true) },
		"evicting": func(n *testutil.Node) { n.SetEvictionPolicy("allkeys-lru", 1) },
		"old":      func(n *testutil.Node) { n.SetVersion("6.2.6") },
		"right":    func(n *testutil.Node) { n.Refuse("ZREM", "NOPERM x") },
		"login":    func(n *testutil.Node) { n.Refuse("INFO", "NOAUTH Authentication required.") },
	}, func(t *testing.T, w *world, breaks func(*testutil.Node)) {
		w.process()
		breaks(w.nodes[2])
		if _, err := New(testutil.Clients(w.nodes), quietly); err == nil {
			t.Error("New starts")
		}
		d := w.diagnose()
		if got := d.brief(); len(got) != 1 || got[0].severity != "fault" || got[0].node != 2 {
			t.Errorf("findings are %v", got)
		}
	})
}

// The advice to grant a right names the user of the client, or "<user>" if the client does not show it.
func TestUserOf(t *testing.T) {
	t.Parallel()
	node := redis.NewClient(&redis.Options{})
	server := redis.NewClient(&redis.Options{Username: "service"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Username: "service"})
	wrapped := struct{ redis.UniversalClient }{server}
	for client, want := range map[redis.UniversalClient]string{node: "default", server: "service", cluster: "service", wrapped: "<user>"} {
		if got := goredis.UserOf(client); got != want {
			t.Errorf("%T: %s, want %s", client, got, want)
		}
		client.Close()
	}
}
