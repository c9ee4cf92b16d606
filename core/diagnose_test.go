package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// What Diagnose says of nodes, by embedded ones; realdiagnose_test.go has what only real servers tell.

// A found is what tests look at of a finding.
type found struct {
	severity Severity
	code     FindingCode
	node     int
}

// brief are findings above note.
func (d Diagnosis) brief() (all []found) {
	for _, f := range d.Findings {
		if f.Severity != SeverityNote {
			all = append(all, found{f.Severity, f.Code, f.Node})
		}
	}
	return all
}

// wantFindings checks all findings above note, and that each says what is wrong and what to do.
func wantFindings(t *testing.T, d Diagnosis, want ...found) {
	t.Helper()
	if got := d.brief(); !slices.Equal(got, want) {
		t.Errorf("findings are %v, want %v:\n%s", got, want, d.text())
	}
	for _, f := range d.Findings {
		if f.What == "" || f.Mend == "" || strings.Contains(f.String(), "\n") || !slices.Contains(severities, f.Severity) {
			t.Errorf("unfinished: %+v", f)
		}
	}
}

// text is all findings.
func (d Diagnosis) text() string {
	var lines []string
	for _, f := range d.Findings {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// wantAdvice checks that the findings mention these.
func wantAdvice(t *testing.T, d Diagnosis, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(d.text(), part) {
			t.Errorf("nothing is said of %q:\n%s", part, d.text())
		}
	}
}

// diagnose is Diagnose of the world's nodes.
func (w *world) diagnose(opts ...Option) Diagnosis {
	w.t.Helper()
	return w.diagnoseClients(testutil.Clients(w.nodes), opts...)
}

func (w *world) diagnoseClients(clients []redis.UniversalClient, opts ...Option) Diagnosis {
	w.t.Helper()
	d, err := Diagnose(w.t.Context(), clients, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// Nodes in good health, in use, or about to be, give no finding above note, and are left as they were.
func TestDiagnoseHealthyNodes(t *testing.T) {
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		synctest.Wait() // on all nodes
		before := w.nodes[0].Keys()
		d := w.diagnose()
		wantFindings(t, d)
		if len(d.Nodes) != len(w.nodes) || d.ClockSpread != 0 {
			t.Errorf("%+v", d)
		}
		for i, n := range d.Nodes {
			state := GuardVoting
			if len(w.nodes) < 3 {
				state = GuardOff
			}
			if n.Node != i || !n.Reached || n.Err != nil || n.Role != "master" || n.Version != "7.0.15" || n.Uptime < 0 || n.RunID == "" || n.Guard.State != state ||
				!n.Rights.Known || len(n.Rights.Essential) > 0 || n.Clock != (ClockFacts{true, 0, 0}) {
				t.Errorf("%+v", n)
			}
			// Embedded nodes do not tell: nothing is guessed.
			if n.Memory.Used != -1 || n.Persistence != (PersistenceFacts{}) || n.Replication.MinToWrite != -1 || n.Replication.Behind != -1 || n.Rights.User != "" {
				t.Errorf("made up: %+v", n)
			}
		}
		if now := w.nodes[0].Keys(); !slices.Equal(now, before) {
			t.Errorf("keys %v, were %v", now, before)
		}
		w.release(lease)
	})
}

// To look at nodes begins no quarantine: what Provision may declare new before, it may after.
func TestDiagnoseBeforeProvision(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		wantFindings(t, w.diagnose(), found{SeverityWarning, CodeNotProvisioned, -1})
		for i, n := range w.nodes {
			if keys := n.Keys(); len(keys) > 0 {
				t.Errorf("node %d has %v", i, keys)
			}
		}
		p := w.stranger()
		p.links[2].set(fate{refuse: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Provision(ctx); err == nil {
			t.Fatal("declared new without node 2")
		}
		wantFindings(t, w.diagnose(), found{SeverityWarning, CodeNotProvisioned, -1})
		p.mend()
		if err := p.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := w.diagnose()
		wantFindings(t, d)
		if g := d.Nodes[2].Guard; !g.Declared || !g.Unused || g.State != GuardVoting || g.Longest != 10*time.Second {
			t.Errorf("%+v", g)
		}
	})
}

// A quarantine is shown with what is left of it, and is over when it says.
func TestDiagnoseQuarantine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithReplicaLag(3 * time.Second))
		time.Sleep(time.Minute)
		w.nodes[1].Flush()
		const ahead = 200 * time.Millisecond
		w.nodes[1].StepClock(ahead) // by its clock it counts
		if err := p.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		d := w.diagnose(WithReplicaLag(3 * time.Second))
		wantFindings(t, d, found{SeverityWarning, CodeQuarantined, 1})
		wantAdvice(t, d, "votes by itself in 11s")
		g := d.Nodes[1].Guard
		if g.State != GuardQuarantined || g.Left != 11*time.Second || !g.Since.Equal(time.Now().Add(ahead-2*time.Second)) {
			t.Errorf("%+v", g)
		}
		time.Sleep(g.Left)
		if d = w.diagnose(WithReplicaLag(3 * time.Second)); d.Nodes[1].Guard.State != GuardVoting {
			t.Errorf("%+v", d.Nodes[1].Guard)
		}
		wantFindings(t, d)
	})
}

func TestDiagnoseClockSpread(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.process()
		w.nodes[0].StepClock(150 * time.Millisecond)
		w.nodes[2].StepClock(-100 * time.Millisecond)
		if d := w.diagnose(); d.ClockSpread != 250*time.Millisecond || d.Nodes[2].Clock.Offset != -100*time.Millisecond {
			t.Errorf("spread %v, %+v", d.ClockSpread, d.Nodes[2].Clock)
		}
		for _, n := range w.nodes {
			n.Slow(100 * time.Millisecond)
		}
		d := w.diagnose()
		if n := d.Nodes[0]; n.Clock.Within != 50*time.Millisecond || n.Cost.P50 != 100*time.Millisecond || n.Cost.P99 != 100*time.Millisecond || n.Cost.Script != 0 {
			t.Errorf("%+v, %+v", n.Clock, n.Cost)
		}
	})
}

func TestDiagnoseEvenNumbers(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		d := w.diagnose()
		wantFindings(t, d, found{SeverityWarning, CodeEven, -1})
		wantAdvice(t, d, "use 1, 3 or 5")
	})
}

// Nodes on one host are told of; on this machine's own, as a note.
func TestDiagnoseSameHost(t *testing.T) {
	for name, c := range map[string]struct {
		addrs []string
		want  []found
		says  string
	}{
		"three hosts": {[]string{"a:6379", "b:6379", "c:6379"}, nil, ""},
		"two of one":  {[]string{"a:6379", "b:6379", "b:6380"}, []found{{SeverityWarning, CodeSameHost, -1}}, "nodes 1, 2 are on one host, b"},
		"loopback":    {[]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, nil, "nodes 0, 1, 2 are on one host"},
		"by name":     {[]string{"localhost:1", "localhost:2", "c:3"}, nil, "fine for development"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.process()
				var clients []redis.UniversalClient
				for i, n := range w.nodes {
					clients = append(clients, n.ClientWith(func(o *redis.Options) { o.Addr = c.addrs[i] }))
				}
				d := w.diagnoseClients(clients)
				wantFindings(t, d, c.want...)
				wantAdvice(t, d, c.says)
			})
		})
	}
}

// However many nodes hang, it takes few node timeouts, and ends with its context.
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
		_, err := Diagnose(ctx, testutil.Clients(w.nodes))
		wantErr(t, err, context.Canceled)
		wantErr(t, err, errGone)
		wantBetween(t, "ended after", time.Since(start), 300*time.Millisecond, 300*time.Millisecond)
		for _, n := range w.nodes {
			n.Up()
		}
		clients := testutil.Clients(w.nodes)
		clients[3].(*redis.Client).AddHook(deafTo("eval evalsha"))
		start = time.Now()
		if d := w.diagnoseClients(clients); d.Nodes[3].Err == nil || d.Nodes[3].Cost.P50 < 0 {
			t.Errorf("%+v", d.Nodes[3])
		}
		wantBetween(t, "with a node that leaves one request unanswered it took", time.Since(start), time.Second, time.Second)
		for _, n := range w.nodes {
			n.Slow(900 * time.Millisecond)
		}
		start = time.Now()
		w.diagnose()
		wantBetween(t, "slow nodes took", time.Since(start), 0, patience*time.Second)
		time.Sleep(time.Minute)
	})
}

func TestDiagnoseRefuses(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := w.nodes[0].Client()
		_, err := Diagnose(t.Context(), []redis.UniversalClient{client, nil, client}, TTL(-1))
		wantErr(t, err, ErrInvalid)
		wantInError(t, err, "TTL", "node 1: client is nil", "same client")
		var none context.Context
		_, err = Diagnose(none, []redis.UniversalClient{client})
		wantErr(t, err, ErrInvalid)
		_, err = Diagnose(t.Context(), nil)
		wantErr(t, err, ErrInvalid)
	})
}

// What New refuses lastingly, Diagnose calls a fault of that node.
func TestDiagnoseAgreesWithNew(t *testing.T) {
	for name, breaks := range map[string]func(*testutil.Node){
		"replica":  func(n *testutil.Node) { n.SetReplica(true) },
		"evicting": func(n *testutil.Node) { n.SetEvictionPolicy("allkeys-lru", 1) },
		"old":      func(n *testutil.Node) { n.SetVersion("6.2.6") },
		"right":    func(n *testutil.Node) { n.Refuse("HDEL", "NOPERM x") },
		"login":    func(n *testutil.Node) { n.Refuse("INFO", "NOAUTH Authentication required.") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.process()
				breaks(w.nodes[2])
				if _, err := New(testutil.Clients(w.nodes), quietly); err == nil {
					t.Error("New starts")
				}
				d := w.diagnose()
				if got := d.brief(); len(got) != 1 || got[0].severity != SeverityFault || got[0].node != 2 {
					t.Errorf("findings are %v", got)
				}
			})
		})
	}
}
