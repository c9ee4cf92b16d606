package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// Failures as they happen, and the alerts that a Prometheus server raises for them. In its rules, a minute lasts a
// second.

// A scene is a process with nodes of its own, and with a job of its own in Prometheus.
type scene struct {
	name string
	act  func(ctx context.Context, s *scene) // runs until ctx ends

	fires []string // alerts that must fire
	quiet []string // alerts that must not
	seen  string   // a query about the job that must have had a result before quiet is checked
	after string   // a query that has no result after the scene

	*telemetry
	nodes []*testutil.Node
	locks *core.Locker

	stranger *core.Locker // on the same nodes, without telemetry
}

var scenes = []*scene{
	{name: "stuck on a busy route", act: stuckOnABusyRoute, fires: []string{"LockkitStuckHolder"}, quiet: []string{"LockkitHolderUnknown", "LockkitUnavailable", "LockkitNodeNotVoting"}},
	{name: "stuck and asked for once", act: stuckAndAskedForOnce, fires: []string{"LockkitStuckHolder"}, quiet: []string{"LockkitHolderUnknown"}},
	{name: "long and in nobody's way", act: longAndInNobodysWay, quiet: []string{"LockkitStuckHolder", "LockkitHolderUnknown"}, seen: `lockkit_hold_age_seconds{$job} > 35`},
	{name: "held by a stranger", act: heldByAStranger, fires: []string{"LockkitHolderUnknown"}, quiet: []string{"LockkitStuckHolder"}},
	{name: "no quorum", act: noQuorum, fires: []string{"LockkitNoNodeToSpare"}, quiet: []string{"LockkitStuckHolder", "LockkitHolderUnknown"},
		seen: `min_over_time(lockkit_waiters{$job}[35s]) > 0 and lockkit_waiters{$job} offset 35s > 0`},
	{name: "quiet blip", act: quietBlip, seen: `lockkit_node_voting{$job} < 1`,
		after: `ALERTS{$job,alertstate="firing"} or lockkit_node_voting{$job} < 1`},
	{name: "quiet death", act: quietDeath, fires: []string{"LockkitNodeNotVoting", "LockkitNoNodeToSpare"}},
	{name: "overloaded", act: overloaded, fires: []string{"LockkitOverloaded"}, quiet: []string{"LockkitUnavailable"}},
	{name: "tasks dropped", act: tasksDropped, fires: []string{"LockkitTaskDropped"}, quiet: []string{"LockkitTaskAtRisk", "LockkitTickMissed", "LockkitUnavailable"},
		seen: `lockkit_events_total{$job,lockkit_event="archived_unrun"} and on (job) lockkit_events_total{$job,lockkit_event="no_key"}`},
}

// Each failure raises the alerts that it must raise, and none that it must not raise. "make dashboards" runs this test.
func TestAlertScenes(t *testing.T) {
	if os.Getenv("LOCKKIT_PROMETHEUS") != "required" {
		t.Skip("needs a Prometheus server and a minute: make dashboards")
	}
	t.Parallel()
	targets := map[string]string{}
	for _, s := range scenes {
		targets[s.name] = s.start(t)
	}

	p := startPrometheus(t, hurried(t), targets)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, s := range scenes {
		all.Go(func() { s.act(ctx, s) })
	}
	defer all.Wait()
	defer cancel()

	eventually(t, 10*time.Minute, func() (faults []string) {
		for _, s := range scenes {
			faults = append(faults, s.missing(p)...)
		}
		return faults
	})

	for _, s := range scenes {
		t.Logf("%s: raised %q", s.name, s.raised(t, p))
		p.draw(t, s.name)
		for _, alert := range s.quiet {
			if n, err := p.values(s.firing(alert), p.since); n > 0 || err != nil {
				t.Errorf("%s: %s was raised for %d s (%v)", s.name, alert, n, err)
			}
		}
	}
}

// hurried returns a file with the alert rules, in which everything is sixty times as fast.
func hurried(t *testing.T) string {
	t.Helper()
	rules := read(t, "../../otel/dashboards/alerts.yaml")
	rules = regexp.MustCompile(`\b(\d+)m\b`).ReplaceAllString(rules, "${1}s")
	rules = regexp.MustCompile(`\b(\d+)h\b`).ReplaceAllString(rules, "${1}m")
	if strings.Count(rules, ") > 900\n") != 1 {
		t.Fatal("the age at which a hold is too old is not where it was")
	}
	rules = strings.Replace(rules, ") > 900\n", ") > 15\n", 1)
	name := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(name, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (s *scene) firing(alert string) string {
	return fmt.Sprintf("ALERTS{alertstate=\"firing\",alertname=%q,job=%q}", alert, s.name)
}

// raised returns the alerts that were raised, expected or not.
func (s *scene) raised(t *testing.T, p *database) []string {
	t.Helper()
	found, err := p.query(s.ofJob(`max by (alertname) (ALERTS{$job,alertstate="firing"})`), p.since)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, series := range found {
		names = append(names, series.Metric["alertname"])
	}
	return names
}

// ofJob returns a query about the scene.
func (s *scene) ofJob(expr string) string {
	return strings.ReplaceAll(expr, "$job", fmt.Sprintf("job=%q", s.name))
}

// missing returns the expected results that are still missing.
func (s *scene) missing(p *database) (faults []string) {
	for _, alert := range s.fires {
		if n, err := p.values(s.firing(alert), p.since); n == 0 || err != nil {
			faults = append(faults, fmt.Sprintf("%s: %s is not raised (%v)", s.name, alert, err))
		}
	}
	if s.seen != "" {
		if n, err := p.values(s.ofJob(s.seen), p.since); n == 0 || err != nil {
			return append(faults, fmt.Sprintf("%s: nothing seen of %s (%v)", s.name, s.ofJob(s.seen), err))
		}
	}
	if s.after != "" {
		if n, err := p.values(s.ofJob(s.after), time.Now().Add(-time.Second)); n > 0 || err != nil {
			faults = append(faults, fmt.Sprintf("%s: still %s (%v)", s.name, s.ofJob(s.after), err))
		}
	}
	return faults
}

// start starts the scene's process, and returns the address of its metrics.
func (s *scene) start(t *testing.T) string {
	t.Helper()
	telemetry, err := newTelemetry(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.telemetry = telemetry
	server := httptest.NewServer(telemetry.handler)
	s.nodes = []*testutil.Node{testutil.StartNode(), testutil.StartNode(), testutil.StartNode()}
	s.locks = s.process(t, core.WithObserver(telemetry.observer))
	s.stranger = s.process(t)
	t.Cleanup(func() {
		server.Close()
		telemetry.close()
		closeNodes(s.nodes)
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// process returns the Locker of another process on the nodes of the scene.
func (s *scene) process(t *testing.T, opts ...core.Option) *core.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, n := range s.nodes {
		clients = append(clients, n.Client())
	}
	locks, err := core.New(clients, append([]core.Option{core.Name("orders"), core.TTL(ttl), core.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err == nil {
		err = newnodes.Declare(t.Context(), locks)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		locks.Close(ctx)
	})
	return locks
}

// holds holds a key until ctx ends.
func holds(ctx context.Context, locks *core.Locker, key string) {
	locks.Do(ctx, key, func(ctx context.Context) error { <-ctx.Done(); return nil })
}

// patient acquires a key again and again until ctx ends, however long each wait takes.
func (s *scene) patient(ctx context.Context, key string) {
	for ctx.Err() == nil {
		s.locks.Do(ctx, key, func(context.Context) error { return nil })
	}
}

func stuckOnABusyRoute(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { holds(ctx, s.locks, "stuck") })
	for i := range 3 { // requests for other keys, which contend with each other
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				s.locks.Do(ctx, fmt.Sprint("order ", n%2), func(ctx context.Context) error { return stage.Sleep(ctx, 50*time.Millisecond) })
			}
		})
	}
	short, err := s.locks.With(core.MaxWait(200 * time.Millisecond))
	if err != nil {
		panic(err)
	}
	for stage.Sleep(ctx, 2*time.Second) == nil {
		short.Do(ctx, "stuck", func(context.Context) error { return nil })
	}
}

func stuckAndAskedForOnce(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { holds(ctx, s.locks, "stuck") })
	if stage.Sleep(ctx, 20*time.Second) == nil {
		s.locks.TryAcquire(ctx, "stuck")
	}
}

func longAndInNobodysWay(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { holds(ctx, s.locks, "long") })
	if stage.Sleep(ctx, time.Second) == nil { // a replica that leaves the work to the holder
		s.locks.TryAcquire(ctx, "long")
	}
	for stage.Sleep(ctx, 100*time.Millisecond) == nil {
		s.locks.TryDo(ctx, "another", func(context.Context) error { return nil })
	}
}

func heldByAStranger(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { holds(ctx, s.stranger, "k") })
	if stage.Sleep(ctx, time.Second) == nil {
		s.patient(ctx, "k")
	}
}

func noQuorum(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { holds(ctx, s.locks, "k") })
	if stage.Sleep(ctx, time.Second) == nil {
		all.Go(func() { s.patient(ctx, "k") })
		s.nodes[0].Down()
		s.nodes[1].Down()
	}
}

// quietBlip takes a node away for a while. The process has no traffic.
func quietBlip(ctx context.Context, s *scene) {
	stage.Sleep(ctx, 7*time.Second) // the node has been touched
	s.nodes[1].Down()
	stage.Sleep(ctx, 15*time.Second)
	s.nodes[1].Up()
}

func quietDeath(ctx context.Context, s *scene) {
	stage.Sleep(ctx, 7*time.Second)
	s.nodes[2].Down()
}

// overloaded lets a few keys take all the places for requests that wait.
func overloaded(ctx context.Context, s *scene) {
	locks, err := httplock.New(s.locks, "orders", httplock.ByParam("id"), httplock.WithMaxWaiters(1), httplock.WithMaxWait(time.Minute))
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.WithoutCancel(ctx))
	router := gin.New()
	router.PUT("/orders/:id", locks.Lock, func(c *gin.Context) { <-c.Request.Context().Done() })
	w := &web{router}
	var all sync.WaitGroup
	defer all.Wait()
	// Of each key, the first request is served, and the second one waits.
	for i := 0; stage.Sleep(ctx, 100*time.Millisecond) == nil; i++ {
		all.Go(func() { w.send(ctx, http.MethodPut, fmt.Sprint("/orders/", i%20), "") })
	}
}
