package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// The ACL in the manual is enough for everything that a Locker does, and every right in it is needed.
func TestLeastACL(t *testing.T) {
	t.Parallel()
	rules := manualsACL(t)
	server := testutil.NewServers(t, 1)[0]
	admin := server.Client().(*redis.Client)
	password := slices.IndexFunc(rules, func(r string) bool { return strings.HasPrefix(r, ">") })
	rules[password] = ">password"

	if err := everythingWith(t, rules, server, admin); err != nil {
		t.Fatalf("with %v: %v", rules, err)
	}

	for i, r := range rules {
		if !strings.ContainsAny(r[:1], "+~&") {
			continue
		}
		err := everythingWith(t, slices.Delete(slices.Clone(rules), i, i+1), server, admin)
		if err == nil {
			t.Errorf("%s is not needed", r)
		} else if told := "add " + r + " to its ACL"; forQueues(r) && !strings.Contains(err.Error(), told) {
			t.Errorf("without %s: %v", r, err)
		}
	}
}

// forQueues reports whether only waiters need a right. If it is missing, New says what to add.
func forQueues(rule string) bool {
	return strings.HasPrefix(rule, "+z") || slices.Contains([]string{"+publish", "+subscribe", "+ping", "&lockkit:*"}, rule)
}

func only(rules ...string) func(string) bool {
	return func(rule string) bool { return slices.Contains(rules, rule) }
}

// acquiring starts Acquire and returns the channel of its result.
func acquiring(l *Locker, ctx context.Context, key string) <-chan tryResult {
	done := make(chan tryResult, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		done <- tryResult{lease, err}
	}()
	return done
}

// The ACL for operators in the manual is enough for everything that tools do, and every right in it is needed.
func TestLeastACLForOperators(t *testing.T) {
	t.Parallel()
	rules := manualsUser(t, "operator")
	services := manualsACL(t)
	server := testutil.NewServers(t, 1, "--appendonly", "yes", "--appendfsync", "always")[0]
	admin := server.Client().(*redis.Client)
	rules[slices.IndexFunc(rules, func(r string) bool { return strings.HasPrefix(r, ">") })] = ">password"

	if err := errors.Join(everythingWith(t, rules, server, admin), operations(t, server)); err != nil {
		t.Fatalf("with %v: %v", rules, err)
	}

	for _, r := range services {
		if !slices.Contains(rules, r) && r[0] != '>' {
			t.Errorf("operators lack %s, which services have", r)
		}
	}

	for i, r := range rules {
		if slices.Contains(services, r) || !strings.ContainsAny(r[:1], "+~&") { // TestLeastACL checks these
			continue
		}
		less := slices.Delete(slices.Clone(rules), i, i+1)
		if err := everythingWith(t, less, server, admin); err != nil {
			t.Errorf("without %s: %v", r, err)
		}
		if operations(t, server) == nil {
			t.Errorf("%s is not needed", r)
		}
	}
}

// operations does what operators do and services do not.
func operations(t *testing.T, server *testutil.Server) error {
	client := server.ClientWith(func(o *redis.Options) { o.Username, o.Password = "lockkit", "password" })
	replicated := server.ClientWith(func(o *redis.Options) { o.Username, o.Password = "lockkit", "password" })
	replicated.AddHook(rewriteInfo{line: "connected_slaves:0", by: "connected_slaves:1\r\nmin_slaves_good_slaves:1"})
	d := diagnosed(t, []redis.UniversalClient{replicated}, WithRestartGuard(true), WithReplicaLag(5*time.Second), unhurried, quietly)
	if got := d.brief(); !slices.Equal(got, []found{{"risk", "replica_lag", 0}}) {
		return fmt.Errorf("findings %s", d.text())
	}

	// lockctl lists keys in this way. It reads them as Locker.Inspect does.
	keys, _, err := client.Scan(t.Context(), 0, "lockkit:*", 1).Result()
	for _, key := range append(keys, "lockkit:none") {
		err = errors.Join(err, client.GetRange(t.Context(), key, 0, 9).Err(), client.PTTL(t.Context(), key).Err())
	}
	if err != nil && !strings.Contains(err.Error(), "WRONGTYPE") || err != nil && strings.Contains(err.Error(), "NOPERM") {
		return err
	}
	return nil
}

// everythingWith does everything that needs a right, as a user with these rules.
func everythingWith(t *testing.T, rules []string, server *testutil.Server, admin *redis.Client) error {
	t.Helper()
	args := []any{"ACL", "SETUSER", "lockkit", "reset"}
	for _, r := range rules {
		args = append(args, r)
	}
	for _, cmd := range [][]any{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, args, {"ACL", "LOG", "RESET"}} {
		if err := admin.Do(t.Context(), cmd...).Err(); err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
	}

	var locks [2]*Locker
	for i := range locks {
		var err error
		locks[i], err = Open([]string{"redis://lockkit:password@" + server.Addr()}, WithRestartGuard(true), unhurried, quietly)
		if err != nil {
			return err
		}
		defer locks[i].Close(t.Context())
	}

	if err := everyScript(t, locks[0]); err != nil {
		return err
	}
	if err := waitOnce(t, locks[0], locks[1], admin); err != nil {
		return err
	}
	return deniedInScripts(t, admin)
}

// manualsACL returns the rules that the manual sets for the user of services.
func manualsACL(t *testing.T) []string {
	t.Helper()
	return manualsUser(t, "lockkit")
}

// manualsUser returns the rules that the manual sets for a user.
func manualsUser(t *testing.T, user string) []string {
	t.Helper()
	manual := must(os.ReadFile("../docs/operations.md"))
	m := regexp.MustCompile(`(?m)^ACL SETUSER ` + user + ` (.*)$`).FindSubmatch(manual)
	if m == nil {
		t.Fatalf("docs/operations.md has no line ACL SETUSER %s …", user)
	}
	return strings.Fields(string(m[1]))
}

// unhurried gives servers time to answer, and requests time to arrive. A busy machine must not look like a missing
// right.
var unhurried = option(func(c *policy) {
	c.ttl, c.Window = time.Minute, 5*time.Second
	withNodeTimeout(10 * time.Second).apply(c)
})

// everyScript takes every path through the scripts that calls another command.
func everyScript(t *testing.T, l *Locker) error {
	ctx := t.Context()
	if err := l.Provision(ctx); err != nil {
		return err
	}

	for _, rest := range []time.Duration{0, 10 * time.Second} {
		lease, err := l.TryAcquire(ctx, fmt.Sprint("key ", rest))
		if err != nil {
			return err
		}
		if err := lease.renewOnce(); err != nil {
			return err
		}
		if err := lease.Release(ctx, Cooldown(rest)); err != nil {
			return err
		}
		if again := lease.renewOnce(); !errors.Is(again, ErrLost) { // finds the tombstone
			return fmt.Errorf("renewal after the release: %w", again)
		}
	}

	lease, err := l.TryAcquire(ctx, "done")
	if err != nil {
		return err
	}
	if err := lease.Complete(ctx, []byte("result")); err != nil {
		return err
	}
	if s, err := l.Inspect(ctx, "done"); err != nil || s.Record == nil {
		return fmt.Errorf("looking at it: %+v, %w", s, err)
	}
	if _, err := l.TryAcquire(ctx, "done"); !errors.Is(err, ErrDone) {
		return fmt.Errorf("a completed key: %w", err)
	}
	return nil
}

// waitOnce makes one process wait for another, so that the nodes do everything that they do for waiters.
func waitOnce(t *testing.T, holder, waiter *Locker, admin redis.UniversalClient) error {
	lease, err := holder.TryAcquire(t.Context(), "waited for")
	if err != nil {
		return err
	}

	got := acquiring(waiter, t.Context(), "waited for")
	testutil.Await(t, "subscribed", func() bool { return len(admin.PubSubChannels(t.Context(), "lockkit:*").Val()) > 0 })
	if err := lease.Release(t.Context()); err != nil {
		return err
	}

	if next := testutil.Receive(t, got); next.err != nil {
		return next.err
	} else if err := next.lease.Release(t.Context()); err != nil {
		return err
	}
	return err
}

// deniedInScripts returns an error if a script called a command without the right to, even if the script went on.
func deniedInScripts(t *testing.T, admin redis.UniversalClient) error {
	log := must(admin.ACLLog(t.Context(), 100).Result())
	for _, entry := range log {
		if entry.Context == "lua" {
			return fmt.Errorf("a script was denied %s %s", entry.Reason, entry.Object)
		}
	}
	return nil
}

// renewOnce renews the lease in one round, and returns the result.
func (lease *Lease) renewOnce() error {
	r := lease.attempt.newRound(wire.OpRenew, (*node.Round).LeaseDecided)
	r.AskTroubled, r.Each = true, lease.attempt.lock.Renew(lease.attempt.p.ttlMillis, len(lease.attempt.nodes), func(int) wire.Renew { return wire.Renew{Token: lease.attempt.token, Turn: lease.attempt.p.turnMillis} })
	lease.attempt.mu.Lock()
	was, phase := lease.state, lease.attempt.phase
	// The round must be sent even if the lease is over.
	lease.state, lease.attempt.phase = leasePending, attemptAsking
	lease.attempt.mu.Unlock()
	defer func() {
		lease.attempt.mu.Lock()
		defer lease.attempt.mu.Unlock()
		lease.state, lease.attempt.phase = was, phase
	}()
	r.Send(lease.ctx.parent, quorum.All(len(lease.attempt.e.Nodes)))
	r.Wait(context.Background())
	switch {
	case r.Confirmed():
		return nil
	case r.Outvoted():
		return ErrLost
	}
	return fmt.Errorf("%w: %v", ErrUnavailable, r.Votes[0].Err)
}

// With the changes that the manual names for Clusters, its ACL is enough for them, too.
func TestWaitingInAClusterWithTheManualsRights(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 1, 5*time.Second)
	args := []any{"ACL", "SETUSER", "lockkit", "reset"}
	for _, rule := range append(manualsACL(t), "+spublish", "+ssubscribe", "+cluster|slots") {
		if !slices.Contains([]string{"+publish", "+subscribe"}, rule) {
			args = append(args, rule)
		}
	}
	for _, s := range c.Servers {
		succeeds(t, s.Client().Do(t.Context(), args...).Err())
	}

	var log logbook.Book
	var locks [2]*Locker
	for i := range locks {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Servers[0].Addr()}, Username: "lockkit", Password: "secret"})
		defer client.Close()
		var err error
		if locks[i], err = New([]redis.UniversalClient{client}, unhurried, WithLogger(log.Logger())); err != nil {
			t.Fatal(err)
		}
		defer locks[i].Close(over())
	}

	held, err := locks[0].TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := locks[1].Inspect(t.Context(), "k"); err != nil || s.Holder == nil || s.Holder.Token != held.FencingToken() {
		t.Errorf("%+v, %v", s, err)
	}

	master := c.Servers[0].Client()
	got := acquiring(locks[1], t.Context(), "k")
	testutil.Await(t, "subscribed", func() bool { return len(master.PubSubShardChannels(t.Context(), "lockkit:*").Val()) > 0 })

	succeeds(t, held.Release(t.Context()))
	next := testutil.Receive(t, got)
	if next.err != nil {
		t.Fatal(next.err)
	}
	succeeds(t, next.lease.Release(t.Context()))
	log.Want(t, 0, "")
	if err := deniedInScripts(t, master); err != nil {
		t.Error(err)
	}
}
