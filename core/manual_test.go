package core

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// fieldsSection is what the manual says of the keys on a node, with the script that it has redis-cli run.
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

// What redis-cli shows is what the manual says of it, on a real server: of a lock that is held, waited for, released,
// kept taken and completed.
func TestManualsFieldsOfTheKeys(t *testing.T) {
	t.Parallel()
	section, script := fieldsSection(t)
	server := testutil.NewServers(t, 1)[0]
	opts := []Option{quietly, unhurried, WithRestartGuard(true)}
	locker := func(opts ...Option) *Locker {
		l := must(New([]redis.UniversalClient{server.Client()}, opts...))
		t.Cleanup(func() { l.Close(over()) })
		return l
	}
	holder, other := locker(append(opts, WithHolder("web-7f9c/4711"))...), locker(opts...)
	if err := holder.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, ctx := server.Client(), t.Context()
	read := func(key string) (v []any) {
		t.Helper()
		v, err := client.Eval(ctx, script, []string{"lockkit:{0}r:" + key}).Slice()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	lasts := func(key string, about time.Duration) {
		t.Helper()
		if left := client.PTTL(ctx, key).Val(); left > about || left < about-time.Minute {
			t.Errorf("%s expires in %v, want %v", key, left, about)
		}
	}
	if guard := client.HGetAll(ctx, "lockkit:{0}g").Val(); guard["h"] != parseInfo(client.Info(ctx).Val())["master_replid"] ||
		guard["v"] != "1" || guard["n"] == "" || guard["m"] != "60000" || len(guard) != 5 || client.PTTL(ctx, "lockkit:{0}g").Val() != -1 {
		t.Errorf("guard record %v", guard)
	}

	lease := must(holder.Acquire(ctx, "invoice:42", Name("invoices")))
	held := read("invoice:42")
	want := []any{int64(2), held[1], int64(lease.FencingToken()), int64(0), int64(0), lease.id, "", int64(0), "\x01\rweb-7f9c/4711\binvoices"}
	if !slices.Equal(held, want) {
		t.Errorf("held: %q, want %q", held, want)
	}
	if until := time.UnixMilli(held[1].(int64)); time.Until(until) > time.Minute+time.Second || time.Until(until) < 0 {
		t.Errorf("the lease ends at %v", until)
	}
	lasts("lockkit:{0}r:invoice:42", 24*time.Hour+time.Minute)
	if guard := client.HGetAll(ctx, "lockkit:{0}g").Val(); guard["n"] != "" || len(guard) != 4 {
		t.Errorf("guard record %v", guard)
	}

	waiting, stop := context.WithCancel(ctx)
	waited := make(chan struct{})
	go func() { other.Acquire(waiting, "invoice:42"); close(waited) }()
	testutil.Await(t, "somebody waits", func() bool { return client.ZCard(ctx, "lockkit:{0}w:invoice:42").Val() == 1 })
	queue := client.ZRangeWithScores(ctx, "lockkit:{0}w:invoice:42", 0, -1).Val()
	if began := time.UnixMicro(int64(queue[0].Score)); !regexp.MustCompile(`^P lockkit:\{0\}c:\S+ \S+$`).MatchString(queue[0].Member.(string)) || time.Since(began).Abs() > time.Minute {
		t.Errorf("queue %v", queue)
	}
	lasts("lockkit:{0}w:invoice:42", time.Minute)
	if now := read("invoice:42"); now[0] != int64(3) || !slices.Equal(now[1:], held[1:]) {
		t.Errorf("waited for: %q", now)
	}
	stop()
	<-waited

	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	if over := read("invoice:42"); over[1] != int64(0) || over[2] != held[2] || over[3] != int64(-1) {
		t.Errorf("released: %q", over)
	}
	lasts("lockkit:{0}r:invoice:42", 3*time.Hour)
	testutil.Await(t, "one key is left", func() bool {
		keys := client.Keys(ctx, "*").Val()
		slices.Sort(keys)
		return slices.Equal(keys, []string{"lockkit:{0}g", "lockkit:{0}r:invoice:42"})
	})

	lease = must(holder.Acquire(ctx, "invoice:43", MinHold(time.Hour)))
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	if kept := read("invoice:43"); kept[5] != "-" || time.Until(time.UnixMilli(kept[1].(int64))) > time.Hour+time.Second {
		t.Errorf("kept taken: %q", kept)
	}
	lease = must(holder.Acquire(ctx, "invoice:44", Retention(5*time.Hour)))
	if err := lease.Complete(ctx, []byte("sent")); err != nil {
		t.Error(err)
	}
	done := read("invoice:44")
	if token := int64(lease.FencingToken()); len(done) != 13 || done[1] != int64(0) || done[9] != token || done[11] != token || done[12] != "sent" ||
		time.Until(time.UnixMilli(done[10].(int64))) > 5*time.Hour+time.Second {
		t.Errorf("completed: %q", done)
	}
	lasts("lockkit:{0}r:invoice:44", 7*time.Hour)
	tombstones := client.Keys(ctx, "lockkit:{0}x:*").Val()
	if len(tombstones) != 1 || client.Get(ctx, tombstones[0]).Val() != "1" || client.PTTL(ctx, tombstones[0]).Val() > time.Minute {
		t.Errorf("tombstones %v", tombstones)
	}
	if missing := client.Eval(ctx, script, []string{"lockkit:{0}r:nothing"}).Val(); missing != "no such key" {
		t.Error(missing)
	}

	for _, row := range []string{"r:KEY", "w:KEY", "x:ATTEMPT", "g", "p"} {
		if !strings.Contains(section, "\n| `lockkit:{0}"+row+"` |") {
			t.Errorf("the manual has no row for %s", row)
		}
	}
	for n := range 13 {
		if !strings.Contains(section, "\n| "+strconv.Itoa(n+1)+" |") {
			t.Errorf("the manual has no row for field %d", n+1)
		}
	}
	for field := range strings.FieldsSeq("h s m n v") {
		if !strings.Contains(section, fmt.Sprintf("`%s`", field)) {
			t.Errorf("the manual does not have field %s of the guard record", field)
		}
	}
}
