package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

func init() { logging.Disable() } // as main does

// A desk is the environment of an operator: nodes, services that lock on them, and lockctl.
type desk struct {
	t     *testing.T
	nodes []*testutil.Node
	env   map[string]string
	hook  redis.Hook // of the clients; may be nil
}

// atDesk runs f with n embedded nodes in a bubble.
func atDesk(t *testing.T, n int, f func(t *testing.T, d *desk)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, nodes: testutil.NewNodes(t, n), env: map[string]string{}}
		var urls []string
		for _, n := range d.nodes {
			urls = append(urls, "redis://:topsecret@"+n.Name()+":6379")
		}
		d.env["LOCKKIT_NODES"] = strings.Join(urls, ",")
		f(t, d)
	})
}

// clients returns a new client for each node.
func (d *desk) clients() (clients []redis.UniversalClient) {
	for _, n := range d.nodes {
		clients = append(clients, n.ClientWith(func(o *redis.Options) { o.PoolSize, o.MaxRetries, o.DialerRetries = 500, -1, 1 }))
	}
	return clients
}

// service returns the Locker of a new service. The nodes vote.
func (d *desk) service(opts ...core.Option) *core.Locker {
	d.t.Helper()
	l, err := core.New(d.clients(), append([]core.Option{core.WithLogger(slog.New(slog.DiscardHandler)), core.Note("web-1/7")}, opts...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		for _, n := range d.nodes {
			n.Up()
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close then ends the leases that are held
		l.Close(ctx)
		synctest.Wait()
	})
	if err := admin.Provision(d.t.Context(), l); err != nil {
		d.t.Fatal(err)
	}
	return l
}

func (d *desk) acquire(l *core.Locker, key string, opts ...core.CallOption) *core.Lease {
	d.t.Helper()
	lease, err := l.Acquire(d.t.Context(), key, opts...)
	if err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait() // until every node has the lease
	return lease
}

// holds makes a new service hold a key on every node.
func (d *desk) holds(key string) { d.acquire(d.service(), key) }

func (d *desk) release(lease *core.Lease, opts ...core.ReleaseOption) {
	d.t.Helper()
	if err := lease.Release(d.t.Context(), opts...); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

// waiting makes the nodes believe that a process waits for a key. A real waiter may be missing from the queues of some
// nodes.
func (d *desk) waiting(key string) {
	for i := range d.nodes {
		d.exec(i, "ZADD", "lockkit:{0}w:"+key, 1, "P lockkit:{0}c:process name")
		d.exec(i, "PEXPIRE", "lockkit:{0}w:"+key, 60_000)
	}
}

func (d *desk) exec(node int, args ...any) any {
	d.t.Helper()
	reply, err := d.nodes[node].Exec(args...)
	if err != nil {
		d.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// change edits the value that a node stores for a key.
func (d *desk) change(node int, key string, by func(r *testutil.Resource)) {
	d.t.Helper()
	name := "lockkit:{0}r:" + key
	text, _ := d.exec(node, "GET", name).(string)
	r, err := testutil.ParseResource(text)
	if err != nil {
		d.t.Fatal(err)
	}
	by(&r)
	d.exec(node, "SET", name, r.String(), "PX", (24 * time.Hour).Milliseconds())
}

// A said is the result of a call of lockctl.
type said struct {
	code     int
	out, err string
}

// start runs lockctl with ctx.
func (d *desk) start(ctx context.Context, stdout *bytes.Buffer, args ...string) said {
	d.t.Helper()
	return d.startTo(ctx, stdout, stdout, args...)
}

// startTo is start with an output that may fail.
func (d *desk) startTo(ctx context.Context, to io.Writer, stdout *bytes.Buffer, args ...string) said {
	d.t.Helper()
	var stderr bytes.Buffer
	a := &app{stdout: &stickyWriter{w: to}, stderr: &stderr, getenv: func(name string) string { return d.env[name] }}
	a.dial = func(urls []string, opts ...core.Option) ([]redis.UniversalClient, error) {
		checked, err := admin.Dial(urls, opts...) // reports faults of the URLs and options
		for _, c := range checked {
			c.Close()
		}
		if err != nil {
			return nil, err
		}
		clients := d.clients()
		for _, c := range clients {
			if d.hook != nil {
				c.AddHook(d.hook)
			}
		}
		return clients, nil
	}

	code := a.run(ctx, args)
	got := said{code, stdout.String(), stderr.String()}
	if strings.Contains(got.out+got.err, "topsecret") {
		d.t.Errorf("lockctl %v prints a password:\n%s%s", args, got.out, got.err)
	}

	for line := range strings.Lines(got.err) {
		if !strings.HasPrefix(line, "lockctl: ") && !strings.HasPrefix(line, "time=") { // the log has its own lines
			d.t.Errorf("lockctl %v: an error in several lines:\n%s", args, got.err)
		}
	}
	return got
}

// ctl is start with the context of the test.
func (d *desk) ctl(args ...string) said {
	d.t.Helper()
	return d.start(d.t.Context(), new(bytes.Buffer), args...)
}

// well returns the output of a call of lockctl that must succeed.
func (d *desk) well(args ...string) string {
	d.t.Helper()
	got := d.ctl(args...)
	if got.code != exitOK || got.err != "" {
		d.t.Errorf("lockctl %v: %d, %s", args, got.code, got.err)
	}
	return got.out
}

var (
	nodeNames = regexp.MustCompile(`embedded-\d+`)
	attempts  = regexp.MustCompile(`[A-Za-z0-9_-]{22,}[0-9a-z]`)
)

// steady returns the output without the parts that differ between runs. The columns of tables are two spaces apart.
func steady(out string) string {
	seen := map[string]string{}
	out = nodeNames.ReplaceAllStringFunc(out, func(name string) string {
		if seen[name] == "" {
			seen[name] = fmt.Sprintf("host-%d", len(seen)+1)
		}
		return seen[name]
	})
	out = attempts.ReplaceAllString(out, "ATTEMPT")
	out = regexp.MustCompile(`(\S)  +`).ReplaceAllString(out, "$1  ")
	return regexp.MustCompile(` +\n`).ReplaceAllString(out, "\n")
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got, want = strings.TrimSpace(steady(got)), strings.TrimSpace(want); got != want {
		t.Errorf("printed\n%s\n\nwant\n%s", got, want)
	}
}

// wantParts checks that a text contains all the parts.
func wantParts(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
}

// decoded returns the value that -o json printed.
func decoded[T any](t *testing.T, out string) (v T) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(out))
	in.DisallowUnknownFields()
	if err := in.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return v
}
