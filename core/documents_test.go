package core

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// fieldsSection returns the section of the manual about the keys on a node, and the script for redis-cli in it.
func fieldsSection(t *testing.T) (section, script string) {
	t.Helper()
	_, section, found := strings.Cut(string(must(os.ReadFile("../docs/operations.md"))), "\n## Fields of the keys\n")
	section, _, _ = strings.Cut(section, "\n## ")
	parts := regexp.MustCompile(`(?s)\$ redis-cli EVAL '(.*?)' 1 `).FindStringSubmatch(section)
	if !found || parts == nil {
		t.Fatal("the manual does not say how to read a key")
	}
	return section, parts[1]
}

// A cli reads a server as a reader of the manual would.
type cli struct {
	*testing.T
	redis.UniversalClient
	script string
}

// read returns the fields of a lock's key.
func (c *cli) read(key string) []any {
	c.Helper()
	return must(c.Eval(c.Context(), c.script, []string{"lockkit:{0}r:" + key}).Slice())
}

func (c *cli) want(is bool, what string, got any) {
	c.Helper()
	if !is {
		c.Errorf("%s: %q", what, got)
	}
}

// lasts checks that a key expires after that time, or a little sooner.
func (c *cli) lasts(key string, about time.Duration) {
	c.Helper()
	left := c.PTTL(c.Context(), "lockkit:{0}"+key).Val()
	c.want(about-10*time.Minute < left && left <= about, "expiry of "+key, left)
}

// within checks that a field is a time of the server in the future, but no further away than most.
func (c *cli) within(what string, field any, most time.Duration) {
	c.Helper()
	left := time.Until(time.UnixMilli(field.(int64)))
	c.want(0 < left && left <= most+time.Second, what, left)
}

// On a real server, redis-cli shows what the manual says of a lock that is held, waited for, released, in its cooldown
// and completed.
func TestManualsFieldsOfTheKeys(t *testing.T) {
	t.Parallel()
	_, script := fieldsSection(t)
	server := testutil.NewServers(t, 1)[0]
	locker := func(opts ...Option) *Locker {
		l := must(New([]redis.UniversalClient{server.Client()}, append(opts, quietly, unhurried, TTL(time.Hour), WithRestartGuard(true))...))
		t.Cleanup(func() { l.Close(over()) })
		return l
	}
	holder, other := locker(Note("web-7f9c/4711")), locker()

	c := &cli{t, server.Client(), script}
	c.want(c.Eval(t.Context(), script, []string{"lockkit:{0}r:nothing"}).Val() == "no such key", "no key", nil)
	succeeds(t, holder.Provision(t.Context()))
	history := node.ParseInfo(c.Info(t.Context()).Val())["master_replid"]
	guard := c.Get(t.Context(), "lockkit:{0}g").Val()
	c.want(regexp.MustCompile(`^`+history+`\.\d+! 3600000 \S+$`).MatchString(guard) && c.PTTL(t.Context(), "lockkit:{0}g").Val() == -1, "guard record", guard)

	lease := must(holder.Acquire(t.Context(), "invoice:42", Name("invoices")))
	guard = c.Get(t.Context(), "lockkit:{0}g").Val()
	c.want(regexp.MustCompile(`^`+history+`\.\d+! 3600000$`).MatchString(guard), "guard record", guard)
	c.held(lease, other)
	c.ended(holder)
}

// held checks a lease alone, with a waiter for its key, and after its release.
func (c *cli) held(lease *Lease, other *Locker) {
	c.Helper()
	held := c.read("invoice:42")
	c.want(slices.Equal(held, []any{int64(4), held[1], int64(lease.FencingToken()), int64(0), int64(0), lease.name(), "", int64(0), "\rweb-7f9c/4711\binvoices\x00"}), "held", held)
	c.within("end of the lease", held[1], time.Hour)
	c.lasts("r:invoice:42", 25*time.Hour)

	ctx, stop := context.WithCancel(c.Context())
	waited := make(chan struct{})
	go func() { other.Acquire(ctx, "invoice:42"); close(waited) }()
	const queue = "lockkit:{0}w:invoice:42"
	testutil.Await(c, "somebody waits", func() bool { return c.ZCard(ctx, queue).Val() == 1 })
	wait := c.ZRangeWithScores(ctx, queue, 0, -1).Val()
	c.want(regexp.MustCompile(`^P lockkit:\{0\}c:\S+ \S+$`).MatchString(wait[0].Member.(string)) &&
		time.Since(time.UnixMicro(int64(wait[0].Score))).Abs() < 10*time.Minute, "queue", wait)
	c.lasts("w:invoice:42", time.Hour)
	now := c.read("invoice:42")
	c.want(now[0] == int64(5) && slices.Equal(now[1:], held[1:]), "waited for", now)
	stop()
	<-waited

	if err := lease.Release(c.Context()); err != nil {
		c.Error(err)
	}
	released := c.read("invoice:42")
	c.want(released[1] == int64(0) && released[2] == held[2] && released[3] == int64(-1), "released", released)
	c.lasts("r:invoice:42", 3*time.Hour)
	testutil.Await(c, "one key is left", func() bool {
		keys := c.Keys(c.Context(), "*").Val()
		slices.Sort(keys)
		return slices.Equal(keys, []string{"lockkit:{0}g", "lockkit:{0}r:invoice:42"})
	})
}

// ended checks a key in its cooldown, and a completion record.
func (c *cli) ended(holder *Locker) {
	c.Helper()
	ctx := c.Context()
	lease := must(holder.Acquire(ctx, "invoice:43"))
	if err := lease.Release(ctx, Cooldown(time.Hour)); err != nil {
		c.Error(err)
	}
	kept := c.read("invoice:43")
	c.want(kept[5] == wire.CooldownPrefix+lease.name(), "kept taken", kept)
	c.within("kept taken", kept[1], time.Hour)

	lease = must(holder.Acquire(ctx, "invoice:44", Retention(5*time.Hour)))
	if err := lease.Complete(ctx, []byte("sent")); err != nil {
		c.Error(err)
	}
	done, token := c.read("invoice:44"), int64(lease.FencingToken())
	c.want(len(done) == 13 && done[1] == int64(0) && done[9] == token && done[11] == token && done[12] == "sent", "completed", done)
	c.within("record", done[10], 5*time.Hour)
	c.lasts("r:invoice:44", 7*time.Hour)

	tombstone := "lockkit:{0}x:" + lease.name()
	c.want(c.Get(ctx, tombstone).Val() == "2" && c.PTTL(ctx, tombstone).Val() <= time.Minute, "tombstone", c.Keys(ctx, "*").Val())
}

// The manual describes all kinds of keys and all fields.
func TestManualHasAllFields(t *testing.T) {
	t.Parallel()
	section, _ := fieldsSection(t)
	rows := []string{"`lockkit:{0}r:KEY`", "`lockkit:{0}w:KEY`", "`lockkit:{0}x:ATTEMPT`", "`lockkit:{0}g`", "`lockkit:{0}p`"}
	for n := range 13 {
		rows = append(rows, strconv.Itoa(n+1))
	}
	for _, row := range rows {
		if !strings.Contains(section, "\n| "+row+" |") {
			t.Errorf("the manual has no row for %s", row)
		}
	}
	if !strings.Contains(section, "`HISTORY.SINCE LONGEST`") {
		t.Error("the manual does not have the fields of the guard record")
	}
}

// The documents prove their claims by naming tests, and these tests exist.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	read := func(pattern string) (text string) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, f := range files {
			b := must(os.ReadFile(f))
			text += string(b)
		}
		return text
	}

	code := read("../*/*_test.go") + read("../*/*/*_test.go") + read("../*/*/*/*_test.go")
	name := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)(…?)")
	named := name.FindAllStringSubmatch(read("../docs/*.md")+read("../*.md"), -1)
	if len(named) < 30 {
		t.Fatalf("only %d names found", len(named))
	}

	for _, m := range named {
		want := "func " + m[1]
		if m[2] == "" {
			want += "("
		}
		if !strings.Contains(code, want) {
			t.Errorf("no test is called %s%s", m[1], m[2])
		}
	}
}
