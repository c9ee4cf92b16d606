package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/testutil"
)

func TestMain(m *testing.M) {
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if isHolder() {
		if err := hold(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// started starts servers, or skips the test if they are not installed.
func started(t *testing.T, start func(context.Context) ([]backend, func(), error)) []backend {
	t.Helper()
	backends, stop, err := start(t.Context())
	var missing *missingError
	if errors.As(err, &missing) && !missing.required() {
		t.Skip("SKIPPED:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return backends
}

func opened(t *testing.T, b backend) way {
	t.Helper()
	w, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Rules for every way.
func TestWays(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(context.Context) ([]backend, func(), error){
		"lockkit": startRedis, "etcd": startEtcds, "postgres": startPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, b := range started(t, start) {
				t.Run(b.title, func(t *testing.T) {
					t.Run("one at a time", func(t *testing.T) { t.Parallel(); oneAtATime(t, b) })
					t.Run("tokens grow", func(t *testing.T) { t.Parallel(); tokensGrow(t, b) })
					t.Run("stale write", func(t *testing.T) { t.Parallel(); staleWrite(t, b) })
				})
			}
		})
	}
}

// oneAtATime makes contenders add to a number in two steps. No update is lost, and the store refuses none.
func oneAtATime(t *testing.T, b backend) {
	const contenders, turns = 4, 10
	s, err := openStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()

	var latest uint64 // of the holder before; the lock protects it
	var group sync.WaitGroup
	for range contenders {
		w := opened(t, b)
		group.Go(func() {
			for range turns {
				err := w.Do(t.Context(), "contended", func(ctx context.Context, token uint64) error {
					if token <= latest {
						t.Errorf("token %d after %d", token, latest)
					}
					latest = token
					value, err := s.read(ctx, "contended")
					if err != nil {
						return err
					}
					return s.write(ctx, "contended", token, value+1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}

	group.Wait()
	if value, err := s.read(t.Context(), "contended"); value != contenders*turns || err != nil {
		t.Errorf("%d of %d updates, %v", value, contenders*turns, err)
	}
}

var errWork = errors.New("the work failed")

// tokensGrow makes holders fail, one after another. Each of them has a greater token than the one before.
func tokensGrow(t *testing.T, b backend) {
	var latest uint64
	for range 3 {
		err := opened(t, b).Do(t.Context(), "failing", func(_ context.Context, token uint64) error {
			if token <= latest {
				t.Errorf("token %d after %d", token, latest)
			}
			latest = token
			return errWork
		})
		if !errors.Is(err, errWork) {
			t.Errorf("got %v", err)
		}
	}
}

// staleWrite pauses a process that holds the key. Its late write is refused, and its call returns an error.
func staleWrite(t *testing.T, b backend) {
	// If silence does not end a lock, the key stays taken.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := pauseHolder(ctx, b, filepath.Join(t.TempDir(), "store"))
	if errors.Is(err, errNoPause) {
		t.Skip("SKIPPED:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.write != errStale.Error() || p.value != takenOver {
		t.Errorf("the late write: %q, and the value is %d", p.write, p.value)
	}
	if p.do == text(nil) {
		t.Error("the holder was not told")
	}
	if b.Kind == "lockkit" && !p.knew {
		t.Error("the context had not ended")
	}
}

// If the lease of an etcd session ends, the call of the holder returns an error, even if its function returns at once.
// The next call begins another session.
func TestEtcdSessionLost(t *testing.T) {
	t.Parallel()
	b := started(t, startEtcds)[0]
	w := opened(t, b).(*etcdWay)
	for _, waits := range []bool{true, false} {
		err := w.Do(t.Context(), "key", func(ctx context.Context, _ uint64) error {
			if _, err := w.client.Revoke(ctx, w.session.Lease()); err != nil {
				return err
			}
			if waits {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), errSessionLost) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
			}
			return nil
		})
		if !errors.Is(err, errSessionLost) {
			t.Errorf("waits %v: got %v", waits, err)
		}
		testutil.Await(t, "the session ends", func() bool { return w.session.Ctx().Err() != nil })
		if err := w.Do(t.Context(), "key", func(context.Context, uint64) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}

// Replicas can start together on a database without the table.
func TestPostgresOpenedAtOnce(t *testing.T) {
	t.Parallel()
	b := started(t, startPostgres)[0]
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w, err := b.open(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			w.Close(t.Context())
		})
	}
	all.Wait()
}

// If PostgreSQL ends the connection of a holder, its commit fails, and its token is not given out again.
func TestPostgresConnectionKilled(t *testing.T) {
	t.Parallel()
	b := started(t, startPostgres)[0]
	w := opened(t, b)
	var first, second uint64
	err := w.Do(t.Context(), "key", func(ctx context.Context, token uint64) error {
		first = token
		conn, err := pgx.Connect(ctx, b.URLs[0])
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		var killed int
		err = conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE state = 'idle in transaction'`).Scan(&killed)
		if err == nil && killed != 1 {
			t.Errorf("%d connections were idle in a transaction", killed)
		}
		return err
	})
	if err == nil {
		t.Error("the commit went through")
	}

	err = w.Do(t.Context(), "key", func(_ context.Context, token uint64) error {
		second = token
		return nil
	})
	if err != nil || second <= first {
		t.Errorf("token %d after %d, %v", second, first, err)
	}
}

// Two calls may raise the token before either locks the row. Then the call with the smaller token does not run.
func TestPostgresTokenOvertaken(t *testing.T) {
	t.Parallel()
	w := opened(t, started(t, startPostgres)[0]).(*postgresWay)
	nothing := func(context.Context, uint64) error { return nil }
	if err := w.Do(t.Context(), "key", nothing); err != nil { // makes the row
		t.Fatal(err)
	}
	first, err := w.raise(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.raise(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.hold(t.Context(), "key", first, nothing); !errors.Is(err, errRowHeld) {
		t.Errorf("token %d of %d: got %v", first, second, err)
	}
	if err := w.hold(t.Context(), "key", second, nothing); err != nil {
		t.Error(err)
	}
}

// The store refuses smaller tokens, and lets a holder write twice.
func TestStore(t *testing.T) {
	t.Parallel()
	s, err := openStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	for i, write := range []struct {
		token uint64
		want  error
	}{{5, nil}, {5, nil}, {4, errStale}, {6, nil}, {5, errStale}} {
		if err := s.write(t.Context(), "key", write.token, i); !errors.Is(err, write.want) {
			t.Errorf("write %d: got %v, want %v", i, err, write.want)
		}
	}
	if value, err := s.read(t.Context(), "key"); value != 3 || err != nil {
		t.Errorf("got %d, %v", value, err)
	}
}

func TestMissingServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for value, required := range map[string]bool{"": false, "required": true} {
		t.Setenv("LOCKKIT_ETCD", value)
		var missing *missingError
		if _, _, err := startEtcds(t.Context()); !errors.As(err, &missing) || missing.required() != required {
			t.Errorf("LOCKKIT_ETCD=%s: %v", value, err)
		}
	}
}

// writeInto replaces the tables in the document, and keeps the rest.
func TestWriteInto(t *testing.T) {
	t.Parallel()
	const document = "../../../docs/choose.md"
	old, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "choose.md"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"FIRST", "SECOND"} {
		if err := writeInto(dir, text); err != nil {
			t.Fatal(err)
		}
	}
	changed, err := os.ReadFile(filepath.Join(dir, "choose.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(old), beginMark)
	_, after, _ := strings.Cut(string(old), endMark)
	if string(changed) != before+beginMark+"\nSECOND\n"+endMark+after {
		t.Errorf("got\n%s", changed)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	got := report([]backend{{title: "one"}}, []pause{{of: "one", free: 3 * time.Second, write: errStale.Error(), do: "lost: node 0: gone"}},
		[]timing{{pairs: []time.Duration{time.Millisecond, 2 * time.Millisecond}}}, amount{2, 2, 2})
	for _, want := range []string{"| one | 2.0 ms (2.0 ms) |", "| one | 3.00 s | no | refused the write | `lost` |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
