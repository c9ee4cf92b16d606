package queuelock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func testLocker(t *testing.T, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(testutil.Clients(testutil.NewNodes(t, 1)), append([]core.Option{core.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(testLocker(t, core.WithKeyPrefix("asynq:{locks"[:6])),
		nil, WithWait(0), WithGrace(-1), WithRetention(0), WithKey(ByPayloadField()), WithIdentity(ByHeader("")), WithConflict(9), WithNilAfterCancel(9),
		ForType("", WithWait(-1)), ForType("mail", WithKey(Optional(nil)), WithSharedIdentity(nil), nil), ForType("mail"), ForType("long", WithRetention(maxRetention+1)))
	for _, want := range []string{
		"an option is nil", "wait is 0s", "grace is", "retention is", `"asynq:", which belongs to asynq`,
		"the key function is nil", "the identity function is nil", "conflict is 9", "outcome is 9",
		"retention is 87600h0m0.000000001s, must be at least 1s and at most 87600h0m0s", "a pattern of ForType is empty", "wait is -1ns",
		`ForType("mail"): the key function is nil`, `ForType("mail"): the identity function is nil`, `ForType("mail") is there twice`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not named: %s in\n%v", want, err)
		}
	}
	if _, err := New(nil); err == nil || !strings.Contains(err.Error(), "the Locker was not made by New") {
		t.Error(err)
	}
	// What the locker brings along must suit, too.
	if _, err := New(testLocker(t, core.WithKeyPrefix("asynq"))); err != nil {
		t.Error(err)
	}
}

// notRun returns what middleware outside of a Runner's sees of a task whose key is held, and of the same task once the
// locks are out of reach.
func (r *rig) notRun() (held, outOfReach error) {
	r.t.Helper()
	if _, err := r.locker().Acquire(r.t.Context(), core.Key("order", "1"), core.Detached(true)); err != nil {
		r.t.Fatal(err)
	}
	runner := r.runner(r.locker(), field("order"))
	inner := runner.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("the handler ran") }))
	seen := make(chan error, 100)
	cfg := asynq.Config{Logger: silent{}}
	if err := runner.Configure(&cfg); err != nil {
		r.t.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
	if err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := inner.ProcessTask(ctx, t)
		seen <- err
		return err
	})); err != nil {
		r.t.Fatal(err)
	}
	defer srv.Shutdown()
	r.enqueue(order(1))
	held = <-seen
	for _, n := range r.nodes {
		n.Down()
	}
	return held, <-seen
}

// What is not run is no failure, comes back when its error says, and is heard of only if it does not just wait.
func TestConfigureKnowsWhatWasNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		held, outOfReach := r.notRun()
		var heard []error
		cfg := asynq.Config{
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 42 * time.Hour },
			IsFailure:      func(error) bool { return true },
			ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { heard = append(heard, err) }),
		}
		if err := r.runner(r.locker(), WithRetention(50*time.Hour)).Configure(&cfg); err != nil {
			t.Fatal(err)
		}
		for want, err := range map[error]error{core.ErrHeld: held, core.ErrUnavailable: outOfReach} {
			if !errors.Is(err, ErrNotRun) || !errors.Is(err, want) {
				t.Errorf("%v does not match %v", err, want)
			}
			after := cfg.RetryDelayFunc(0, err, order(1)).Round(time.Millisecond)
			if says := fmt.Sprintf("to be delivered again in %v:", after); !strings.Contains(err.Error(), says) {
				t.Errorf("%v: comes back after %v", err, after)
			}
			if cfg.IsFailure(err) || cfg.IsFailure(fmt.Errorf("wrapped: %w", err)) {
				t.Errorf("%v counts as a failure", err)
			}
			cfg.ErrorHandler.HandleError(t.Context(), order(1), err)
		}
		if len(heard) != 1 || heard[0] != outOfReach {
			t.Errorf("heard %v", heard)
		}
	})
}

// Configure keeps what the user has, and asynq's defaults.
func TestConfigureWraps(t *testing.T) {
	r, err := New(testLocker(t))
	if err != nil {
		t.Fatal(err)
	}
	task := asynq.NewTask("task", nil)
	theirs := fmt.Errorf("theirs: %w", core.ErrHeld) // of a lock that the handler takes itself

	var plain asynq.Config
	if err := r.Configure(&plain); err != nil {
		t.Fatal(err)
	}
	if plain.ErrorHandler != nil {
		t.Error("an error handler where there was none")
	}
	if d := plain.RetryDelayFunc(5, theirs, task); d < 625*time.Second || d > 1000*time.Second {
		t.Errorf("not asynq's default delay: %v", d)
	}
	if plain.IsFailure(nil) || !plain.IsFailure(theirs) {
		t.Error("IsFailure")
	}

	var heard []error
	type key struct{}
	cfg := asynq.Config{
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 42 * time.Second },
		IsFailure:      func(err error) bool { return !errors.Is(err, core.ErrHeld) },
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { heard = append(heard, err) }),
		BaseContext:    func() context.Context { return context.WithValue(context.Background(), key{}, 1) },
	}
	if err := r.Configure(&cfg); err != nil {
		t.Fatal(err)
	}
	if d := cfg.RetryDelayFunc(0, theirs, task); d != 42*time.Second {
		t.Errorf("the user's delay is %v", d)
	}
	if cfg.IsFailure(theirs) || !cfg.IsFailure(errors.New("other")) {
		t.Error("the user's IsFailure is not asked")
	}
	cfg.ErrorHandler.HandleError(t.Context(), task, theirs)
	if len(heard) != 1 || heard[0] != theirs {
		t.Errorf("heard %v", heard)
	}
	if ctx := cfg.BaseContext(); ctx.Value(key{}) != 1 {
		t.Error("the user's base context is gone")
	}
	if r.Configure(nil) == nil {
		t.Error("nil is no configuration")
	}
}

// A server that was not wired is said so, once; one that was, not.
func TestMissingConfigureIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		adjust func(*rig, *Runner, *asynq.Config)
		said   int
	}{
		{"wired", func(r *rig, runner *Runner, cfg *asynq.Config) { runner.Configure(cfg) }, 0},
		{"not", func(*rig, *Runner, *asynq.Config) {}, 1},
		{"base context replaced", func(r *rig, runner *Runner, cfg *asynq.Config) {
			runner.Configure(cfg)
			cfg.BaseContext = context.Background
		}, 1},
		{"another runner", func(r *rig, runner *Runner, cfg *asynq.Config) { r.runner(r.locker()).Configure(cfg) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				runner := r.runner(r.locker())
				cfg := asynq.Config{Logger: silent{}}
				c.adjust(r, runner, &cfg)
				srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
				if err := srv.Start(runner.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, time.Second) }))); err != nil {
					t.Fatal(err)
				}
				defer srv.Shutdown()
				for i := range 3 {
					r.enqueue(order(i))
				}
				r.pass(time.Minute)
				if len(r.ledger.done) != 3 {
					t.Errorf("%+v", &r.ledger)
				}
				if got := r.logs.count("ERROR queuelock: a server was made without Runner.Configure"); got != c.said {
					t.Errorf("said %d times\n%s", got, &r.logs)
				}
			})
		})
	}
}

// That a server was wired whose tasks the middleware does not see is said once, and when there is reason to think so.
func TestMissingMiddlewareIsSaidOnce(t *testing.T) {
	const workers = 4
	for _, c := range []struct {
		name    string
		servers int
		behind  string // types with this prefix are behind the middleware
		tasks   []string
		said    int
	}{
		{"behind it", 1, "task", []string{"task", "task", "task", "task", "task", "task", "task", "task", "task", "task"}, 0},
		{"not", 1, "none", []string{"task", "task", "task", "task", "task", "task", "task", "task", "task", "task"}, 1},
		{"not, on two servers", 2, "none", []string{"task", "task", "task", "task", "task", "task", "task", "task", "task", "task", "task", "task", "task", "task"}, 1},
		{"not, and too few to tell", 1, "none", []string{"task", "task", "task", "task"}, 0},
		{"some types", 1, "task:b", []string{"task:a", "task:b", "task:a", "task:a", "task:a", "task:a", "task:a", "task:a"}, 0},
		{"some types, just in time", 1, "task:b", []string{"task:a", "task:a", "task:a", "task:b", "task:a", "task:a", "task:a", "task:a"}, 0},
		{"some types, others first", 1, "task:b", []string{"task:a", "task:a", "task:a", "task:a", "task:a", "task:b"}, 1}, // they do run without
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				runner := r.runner(r.locker())
				bare := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				h := byPrefix(c.behind, runner.Middleware(bare), bare)
				for range c.servers {
					r.serveWired(runner, workers, h)
				}
				for _, typ := range c.tasks {
					r.enqueue(asynq.NewTask(typ, nil))
					r.pass(2 * time.Second)
				}
				if len(r.ledger.done) != len(c.tasks) {
					t.Errorf("%+v", &r.ledger)
				}
				if got := r.logs.count("ERROR queuelock: a server that Runner.Configure was called for runs tasks that the Runner's Middleware does not see"); got != c.said {
					t.Errorf("said %d times\n%s", got, &r.logs)
				}
			})
		})
	}
}

// byPrefix has one handler run the types with the prefix, and the other one all others.
func byPrefix(prefix string, with, without asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if strings.HasPrefix(task.Type(), prefix) {
			return with.ProcessTask(ctx, task)
		}
		return without.ProcessTask(ctx, task)
	})
}

// serveWired starts a server that runs h, and that the runner's Configure was called for.
func (r *rig) serveWired(runner *Runner, workers int, h asynq.Handler) {
	r.t.Helper()
	cfg := asynq.Config{Concurrency: workers, Logger: silent{}}
	if err := runner.Configure(&cfg); err != nil {
		r.t.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
	if err := srv.Start(h); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(srv.Shutdown)
}

// A configuration that no server is made of is nothing to be said.
func TestConfigureAloneIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runner := r.runner(r.locker())
		for range 20 {
			cfg := asynq.Config{Concurrency: 1}
			if err := runner.Configure(&cfg); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(time.Minute)
		if r.logs.count("queuelock: ") > 0 { // of core's, none is meant
			t.Error(&r.logs)
		}
	})
}

// A server that is made of a configuration which has made another one before is no reason to speak of that one, which may
// be idle.
func TestConfigureOnceMoreIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runner := r.runner(r.locker())
		cfg := asynq.Config{Concurrency: 2, Logger: silent{}}
		for _, queue := range []string{"idle", "default"} {
			cfg.Queues = map[string]int{queue: 1}
			if err := runner.Configure(&cfg); err != nil {
				t.Fatal(err)
			}
			srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
			if err := srv.Start(runner.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) }))); err != nil {
				t.Fatal(err)
			}
			defer srv.Shutdown()
		}
		for i := range 10 {
			r.enqueue(order(i))
		}
		r.pass(time.Minute)
		if len(r.ledger.done) != 10 || r.logs.count("ERROR") > 0 {
			t.Errorf("%d of 10 have run\n%s", len(r.ledger.done), &r.logs)
		}
	})
}
