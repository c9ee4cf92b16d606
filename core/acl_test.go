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

	"github.com/lockkit/lockkit/testutil"
)

// The manual's ACL is enough for all that a Locker does, and nothing in it is too much.
func TestLeastACL(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ACL SETUSER lockkit (.*)$`).FindSubmatch(manual)
	if m == nil {
		t.Fatal("docs/operations.md has no line ACL SETUSER lockkit …")
	}
	rules := strings.Fields(string(m[1]))
	server := testutil.Redis(t, 1)[0]
	admin := server.Client().(*redis.Client)
	try := func(rules []string) error {
		args := []any{"ACL", "SETUSER", "lockkit", "reset"}
		for _, r := range rules {
			args = append(args, r)
		}
		for _, cmd := range [][]any{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, args} {
			if err := admin.Do(t.Context(), cmd...).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
		l, err := Open([]string{"redis://lockkit:password@" + server.Addr()}, WithRestartGuard(true), unhurried, quietly)
		if err != nil {
			return err
		}
		defer l.Close(t.Context())
		return everyScript(t, l)
	}
	password := slices.IndexFunc(rules, func(r string) bool { return strings.HasPrefix(r, ">") })
	rules[password] = ">password"
	if err := try(rules); err != nil {
		t.Fatalf("with %v: %v", rules, err)
	}
	for i, r := range rules {
		if strings.HasPrefix(r, "+") || strings.HasPrefix(r, "~") {
			if try(slices.Delete(slices.Clone(rules), i, i+1)) == nil {
				t.Errorf("%s is not needed", r)
			}
		}
	}
}

// unhurried gives servers time to answer: a busy machine is no fault of the ACL.
var unhurried = option(func(c *config) { c.ttl, c.nodeTimeout = time.Minute, 10*time.Second })

// everyScript goes along every path of the scripts that calls something else.
func everyScript(t *testing.T, l *Locker) error {
	ctx := t.Context()
	if l.e.nodes[0].runID == "" {
		return errors.New("the server does not say who it is")
	}
	if err := l.Provision(ctx); err != nil {
		return err
	}
	kept, err := l.With(WithMinHold(10 * time.Second))
	if err != nil {
		return err
	}
	for i, locks := range []*Locker{l, kept} {
		key := fmt.Sprint("key ", i)
		lease, err := locks.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		if err := lease.renewOnce(); err != nil {
			return err
		}
		if err := lease.Release(ctx); err != nil {
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
	if _, err := l.TryAcquire(ctx, "done"); !errors.Is(err, ErrDone) {
		return fmt.Errorf("a completed key: %w", err)
	}
	return nil
}

// renewOnce is one round of renewal, with what comes of it.
func (lease *Lease) renewOnce() error {
	r := round{e: lease.e, p: lease.p, asker: &lease.attempt, script: renewScript, stamped: true, must: true, args: lease.args(renewScript, 0),
		tail:    func(int) []any { return []any{lease.token, 0, 0, noMemory, lease.p.turnMs} },
		decided: func(r *round) bool { return r.settled() }}
	lease.mu.Lock()
	was, ended := lease.state, lease.ended
	lease.state, lease.ended = leaseHeld, false // whatever becomes of it at the nodes
	lease.mu.Unlock()
	defer func() {
		lease.mu.Lock()
		defer lease.mu.Unlock()
		lease.state, lease.ended = was, ended
	}()
	r.send(lease.ctx.parent, allNodes(len(lease.engine.nodes)))
	r.wait(context.Background())
	switch {
	case r.confirmed():
		return nil
	case r.outvoted():
		return ErrLost
	}
	return fmt.Errorf("%w: %v", ErrUnavailable, r.votes[0].err)
}
