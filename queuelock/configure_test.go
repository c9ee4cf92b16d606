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
	return must(core.New(testutil.Clients(testutil.NewNodes(t, 1)), append([]core.Option{core.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...))
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(testLocker(t, core.WithKeyPrefix("asynq:")), nil, WithGrace(-1), WithRetention(20*365*24*time.Hour), WithKey(ByPayloadField()), WithWaiters(-2))
	wantFaults(t, err, "an option is nil", "WithGrace(-1ns): must not be negative", "retention is 175200h0m0s", "the locker's key prefix, asynq:…, belongs to asynq",
		"the key function is nil", "WithWaiters(-2): must not be negative")
	for _, key := range []KeyFunc{ByHeader(""), ByPayloadField("a", ""), Optional(nil), Optional(ByHeader(""))} {
		_, err := New(testLocker(t), WithKey(key))
		wantFaults(t, err, "the key function is nil")
	}
	_, err = New(nil)
	wantFaults(t, err, "the Locker was not made by New")
	m := must(New(testLocker(t, core.WithKeyPrefix("asynq")), WithWaiters(2)))
	_, err = m.With(WithGrace(-1))
	wantFaults(t, err, "WithGrace(-1ns)")
	_, err = m.With(WithWaiters(3))
	wantFaults(t, err, "give it to New")
}

// wantFaults checks that the error names each of these faults.
func wantFaults(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("not named: %s in\n%v", w, err)
		}
	}
}

// Configure keeps the user's settings and asynq's defaults.
func TestConfigureWraps(t *testing.T) {
	r := must(New(testLocker(t)))
	task := asynq.NewTask("task", nil)
	theirs := fmt.Errorf("theirs: %w", core.ErrHeld) // of a lock that the handler takes itself

	var plain asynq.Config
	if err := r.Configure(&plain); err != nil {
		t.Fatal(err)
	}
	plain.ErrorHandler.HandleError(t.Context(), task, theirs) // works without an ErrorHandler of the user's
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

// If a server was not wired to its Middleware, the log says so once.
func TestMissingConfigureIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		adjust func(*rig, *Middleware, *asynq.Config)
		said   int
	}{
		{"wired", func(r *rig, m *Middleware, cfg *asynq.Config) { m.Configure(cfg) }, 0},
		{"not", func(*rig, *Middleware, *asynq.Config) {}, 1},
		{"base context replaced", func(r *rig, m *Middleware, cfg *asynq.Config) {
			m.Configure(cfg)
			cfg.BaseContext = context.Background
		}, 1},
		{"another middleware", func(r *rig, m *Middleware, cfg *asynq.Config) { r.middleware(r.locker()).Configure(cfg) }, 1},
	} {
		bubbleOf(t, c.name, func(t *testing.T, r *rig) {
			m := r.middleware(r.locker())
			r.serve(setup{bare: true, adjust: func(cfg *asynq.Config) { c.adjust(r, m, cfg) }}, m.Middleware(r.works(time.Second)).ProcessTask)
			for i := range 3 {
				r.enqueue(order(i))
			}
			r.pass(time.Minute)
			if len(r.ledger.done) != 3 {
				t.Errorf("%+v", &r.ledger)
			}
			if got := r.logs.Count("level=ERROR", "queuelock: a server was made without Configure"); got != c.said {
				t.Errorf("said %d times\n%s", got, r.logs.Lines())
			}
		})
	}
}
