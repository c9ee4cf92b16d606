package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/testutil"
)

// These tests check what the documentation of errors and types promises, at every place to which the promise applies.

// No method of a nil or zero Lease or Locker panics, and all its errors match ErrInvalid.
func TestUnmadeAnswers(t *testing.T) {
	for _, unmade := range []any{(*Lease)(nil), &Lease{}, (*Locker)(nil), &Locker{}} {
		v := reflect.ValueOf(unmade)
		for i := range v.NumMethod() {
			method := v.Type().Method(i)
			var args []reflect.Value
			for j := range v.Method(i).Type().NumIn() {
				in := v.Method(i).Type().In(j)
				switch {
				case v.Method(i).Type().IsVariadic() && j == v.Method(i).Type().NumIn()-1:
				case in == reflect.TypeFor[context.Context]():
					args = append(args, reflect.ValueOf(t.Context()))
				default:
					args = append(args, reflect.Zero(in))
				}
			}

			t.Run(fmt.Sprintf("%T nil=%v %s", unmade, v.IsNil(), method.Name), func(t *testing.T) {
				for _, got := range v.Method(i).Call(args) {
					if err, is := got.Interface().(error); is && !errors.Is(err, ErrInvalid) {
						t.Errorf("%v", err)
					}
				}
			})
		}
	}
}

// Err of an OpError can be compared: it is always one of the sentinels, or the error of a context.
func TestErrIsExactlyOneOfTheSentinels(t *testing.T) {
	caused := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(fmt.Errorf("a cause: %w", ErrUnavailable))
		return ctx
	}
	bubbles(t, 3, map[string]struct {
		want error
		fail func(w *world, p *process) error
	}{
		"under its own lease": {ErrHeld, func(w *world, p *process) error {
			_, err := p.TryAcquire(w.acquire(p, "k").Context(), "k")
			return err
		}},
		"Do under its own lease": {ErrHeld, func(w *world, p *process) error {
			return p.Do(w.acquire(p, "k").Context(), "k", func(context.Context) error { return nil })
		}},
		"a cause": {context.Canceled, func(w *world, p *process) error {
			_, err := p.Acquire(caused(w.t.Context()), "k")
			return err
		}},
		"a cause, looking": {context.Canceled, func(w *world, p *process) error {
			_, err := p.Inspect(caused(w.t.Context()), "k")
			return err
		}},
		"a cause, revoking": {context.Canceled, func(w *world, p *process) error {
			_, err := p.Revoke(caused(w.t.Context()), "k", 1)
			return err
		}},
		"a cause, getting ready": {context.Canceled, func(w *world, p *process) error {
			w.nodes[0].Hang()
			w.nodes[1].Hang()
			return p.Ready(caused(w.t.Context()))
		}},
		"a deadline": {ErrHeld, func(w *world, p *process) error {
			w.acquire(p, "k")
			ctx, cancel := context.WithTimeoutCause(w.t.Context(), time.Second, errors.New("a cause"))
			defer cancel()
			_, err := p.Acquire(ctx, "k")
			return err
		}},
		"one server twice": {ErrUnavailable, func(w *world, p *process) error {
			w.nodes[1], w.nodes[2] = w.nodes[0], w.nodes[0]
			for _, n := range p.e.Nodes[1:] {
				n.Client = p.e.Nodes[0].Client
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			_, err := p.TryAcquire(ctx, "twice")
			return err
		}},
		"nodes that are too slow": {ErrUnavailable, func(w *world, _ *process) error {
			p := w.process(WithClockWindow(0)) // otherwise such a short TTL is refused
			for _, n := range w.nodes {
				n.Slow(p.p.nodeTimeout * 9 / 10)
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
			defer cancel()
			_, err := p.TryAcquire(ctx, "k", TTL(p.p.nodeTimeout*5/4))
			return err
		}},
		"Extend after the end of its context": {context.Canceled, func(w *world, p *process) error {
			ctx, cancel := context.WithCancelCause(w.t.Context())
			lease, err := p.TryAcquire(ctx, "k", MaxHold(time.Minute))
			if err != nil {
				w.t.Fatal(err)
			}
			cancel(fmt.Errorf("a cause: %w", ErrLost))
			return lease.Extend(time.Minute)
		}},
		"closed": {ErrClosed, func(w *world, p *process) error {
			p.Close(w.t.Context())
			_, err := p.TryAcquire(w.t.Context(), "k")
			return err
		}},
	}, func(t *testing.T, w *world, c struct {
		want error
		fail func(w *world, p *process) error
	}) {
		p := w.process()
		err := c.fail(w, p)
		op, ok := errors.AsType[*OpError](err)
		if !ok {
			t.Fatalf("%v is no OpError", err)
		}
		if op.Err != c.want {
			t.Errorf("Err of %v is %#v", err, op.Err)
		}
		if op.Detail != nil && !errors.Is(op.Detail, op.Err) {
			t.Errorf("Detail %v is not of %v", op.Detail, op.Err)
		}
	})
}

// lacking is a hook that runs the probe in a Lua without some functions. The server appears not to have cached any
// script.
type lacking struct {
	coretest.CommandsOnly
	before string
}

type noScript string

func (e noScript) Error() string { return string(e) }
func (noScript) RedisError()     {}

func (l lacking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch {
		case cmd.Name() == "evalsha":
			cmd.SetErr(noScript("NOSCRIPT No matching script."))
			return cmd.Err()
		case cmd.Name() == "eval" && strings.Contains(args[1].(string), "lacks"):
			args[1] = l.before + args[1].(string)
		}
		return next(ctx, cmd)
	}
}

// New refuses a server whose Lua lacks something that scripts need, and says what it lacks.
func TestServerWhoseLuaLacksSomethingIsRefused(t *testing.T) {
	for before, want := range map[string]string{
		"local struct = nil\n":                  "struct.pack struct.unpack pack",
		"local struct = {pack = struct.pack}\n": "struct.unpack pack",
		"local struct = {pack = struct.pack, unpack = function() return 1, 2, 3, 4 end}\n": "pack",
		"local math = {floor = math.floor, min = math.min, max = math.max}\n":              "math.abs",
		"local string = nil\n": "string.byte string.find",
		"local unpack = nil\n": "unpack",
	} {
		node := testutil.NewNodes(t, 1)[0]
		client := node.ClientWith(nil)
		client.AddHook(lacking{before: before})
		_, err := New([]redis.UniversalClient{client}, quietly)
		if err == nil || !strings.Contains(err.Error(), "lacks "+want) || !strings.Contains(err.Error(), "use Redis") {
			t.Errorf("%q: %v", before, err)
		}
	}
}

// The probe tests all functions of Lua's libraries that scripts call.
func TestProbeTriesWhatScriptsCall(t *testing.T) {
	probe := string(must(os.ReadFile("internal/wire/lua/probe.lua")))
	library := regexp.MustCompile(`\b(?:string|math|table|struct|redis|bit|cjson|cmsgpack)\.[a-z_]+\b`)
	plain := regexp.MustCompile(`\b(?:error|ipairs|pairs|tonumber|tostring|type|unpack|select|next|rawget|setmetatable)\(`)
	comments := regexp.MustCompile(`--.*`)
	for _, file := range must(filepath.Glob("internal/wire/lua/*.lua")) {
		text := comments.ReplaceAllString(string(must(os.ReadFile(file))), "")
		for _, name := range slices.Concat(library.FindAllString(text, -1), plain.FindAllString(text, -1)) {
			if name = strings.TrimSuffix(name, "("); !strings.Contains(probe, "need('"+name+"'") {
				t.Errorf("%s calls %s, which the probe does not try", file, name)
			}
		}
	}
}

// Errors quote only a little of the text that a node sends, even the errors of New.
func TestErrorsQuoteLittle(t *testing.T) {
	const most = 200
	long := strings.Repeat("x", 200<<10)
	for command, text := range map[string]string{"INFO": "ERR " + long, "EVALSHA": "ERR " + long, "EVAL": "WRONGPASS " + long, "TIME": "ERR " + long} {
		t.Run(command, func(t *testing.T) {
			node := testutil.NewNodes(t, 1)[0]
			node.Refuse(command, text)
			l, err := New([]redis.UniversalClient{node.Client()}, quietly)
			if err != nil {
				if len(err.Error()) > 3*most {
					t.Errorf("New: %d bytes: %.300v", len(err.Error()), err)
				}
				return
			}

			defer l.Close(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			for what, call := range map[string]func() error{
				"TryAcquire": func() error { _, err := l.TryAcquire(ctx, "k"); return err },
				"Inspect":    func() error { _, err := l.Inspect(ctx, "k"); return err },
				"Ready":      func() error { return l.Ready(ctx) },
			} {
				if err := call(); err != nil && len(err.Error()) > 3*most {
					t.Errorf("%s: %d bytes: %.300v", what, len(err.Error()), err)
				}
			}
		})
	}

	clients := testutil.NewNodes(t, 1)[0].ClientWith(nil)
	clients.AddHook(rewriteInfo{line: "role:master", by: "role:" + long})
	if _, err := New([]redis.UniversalClient{clients}, quietly); err == nil || len(err.Error()) > 3*most {
		t.Errorf("%.400v", err)
	}
}
