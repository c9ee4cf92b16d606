package main

import (
	"cmp"
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

// watch returns an observer that tells the playground.
func (r *replica) watch() core.Observer {
	return core.Observer{
		Start: r.begins,
		Node:  func(_ context.Context, _ core.OpKind, reply core.NodeReply) { r.heard(reply) },
	}
}

// words are the names under which keys are shown that adapters have made.
var words = map[string]string{core.Key("leader", service): "leader", core.Key("cron", service, "report", "run"): "report"}

func shown(key string) string { return cmp.Or(words[key], key) }

// begins sees operations begin and end.
func (r *replica) begins(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	began, key := time.Now(), shown(op.Key)
	switch {
	case op.Kind == core.OpRenew:
		return ctx, func(out core.Outcome) {
			if out.Err == nil {
				r.renewed(op.Key, op.Token)
			}
		}
	case op.Kind == core.OpAcquire:
		told := !op.Try && !composed(key) // who only tries, does so at each tick
		if told {
			r.waits(key, 1)
		}
		return ctx, func(out core.Outcome) {
			took := time.Since(began)
			if out.Err == nil {
				r.granted(took)
			}
			if told {
				r.waits(key, -1)
				r.waited(key, took, out)
			}
		}
	}
	return ctx, nil
}

// composed reports whether a key was made by core.Key: the adapters have some of their own, for ticks and tasks. Those that
// are shown are words.
func composed(key string) bool { return key != "" && key[0] >= '0' && key[0] <= '9' }

// waited tells of a wait that is over, but not of those that ended with their caller.
func (r *replica) waited(key string, took time.Duration, out core.Outcome) {
	e := Event{Kind: isWait, Key: key, Token: out.Token, Ms: inMillis(took)}
	switch class := core.ClassOf(out.Err); {
	case class == core.ClassHeld, class == core.ClassUnavailable:
		e.Kind, e.Text = isRefused, class.String()
	case class != core.ClassNone, !out.Contended:
		return
	}
	r.say(e)
}

// report says how the replica is doing, a few times a second.
func (r *replica) report(ctx context.Context) {
	for stage.Sleep(ctx, 200*time.Millisecond) == nil {
		r.stats()
	}
}
