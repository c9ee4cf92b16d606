package cronlock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// A row is something that is worked on by one at a time.
type row struct {
	t      *testing.T
	mu     sync.Mutex
	inside []string
	tokens []uint64
	runs   map[string]int
}

func (o *row) enter(who string, token uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inside = append(o.inside, who); len(o.inside) > 1 {
		o.t.Errorf("at once: %v", o.inside)
	}
	o.tokens = append(o.tokens, token)
	o.runs[who]++
}

func (o *row) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside = o.inside[:len(o.inside)-1]
}

// work is what who does with it, under a lease.
func (o *row) work(who string) func(context.Context) error {
	return func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		o.enter(who, lease.FencingToken())
		defer o.leave()
		if run, ok := FromContext(ctx); ok && run.FencingToken != lease.FencingToken() {
			o.t.Errorf("the run has token %d, the lease %d", run.FencingToken, lease.FencingToken())
		}
		time.Sleep(400 * time.Millisecond)
		return nil
	}
}

// Whatever works on the same thing as the job excludes it, and they share the tokens.
func TestJobSharesAKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o, key := &row{t: t, runs: map[string]int{}}, core.Key("order", "42")
		for _, name := range []string{"a", "b"} {
			r := w.replica(name)
			r.job(gocron.CronJob(secondly, true), o.work("job"), WithKey(key))
			r.sched.Start()
		}
		locks := w.locks()
		for range 8 {
			if err := locks.Do(t.Context(), key, o.work("call")); err != nil {
				t.Error(err)
			}
			time.Sleep(1300 * time.Millisecond)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.runs["job"] < 4 || o.runs["call"] != 8 {
			t.Errorf("runs: %v", o.runs)
		}
		for i := 1; i < len(o.tokens); i++ {
			if o.tokens[i] <= o.tokens[i-1] {
				t.Fatalf("tokens do not increase: %d", o.tokens)
			}
		}
	})
}

func TestKeyFaults(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks()
		for want, opts := range map[string][]Option{
			"key has 0 bytes":   {WithKey("")},
			"key has 513 bytes": {WithKey(strings.Repeat("x", 513))},
			"runs may overlap":  {WithKey("x"), WithOverlap(Allow)},
		} {
			if _, err := New(locks, scheduler(t), "service", opts...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := New(locks, scheduler(t), "service", WithKey(strings.Repeat("x", 512))); err != nil {
			t.Error(err)
		}
	})
}
