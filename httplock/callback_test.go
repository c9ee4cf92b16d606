package httplock

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// A place is an option with a function of the application, which the middleware calls with a request.
type place struct {
	options func(f func(*http.Request)) []Option
	refused bool // the function is called for refused requests
	observe bool // the function is an observer of the Locker
}

// makes returns a function for an option. It calls f, and returns value.
func makes(f func(*http.Request), value string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) { f(r); return value, nil }
}

// places has all places by name. The key of the resource is always the same.
var places = map[string]place{
	"ByFunc": {options: func(f func(*http.Request)) []Option {
		return []Option{ByFunc(makes(f, "1")), WithIdempotency(false, NoSender)}
	}},
	"ByKey": {options: func(f func(*http.Request)) []Option {
		return []Option{ByKey(makes(f, "key")), WithIdempotency(false, NoSender)}
	}},
	"WithTenant": {options: func(f func(*http.Request)) []Option {
		return []Option{ByParam("id"), WithTenant(makes(f, "tenant")), WithIdempotency(false, NoSender)}
	}},
	"WithIdempotency": {options: func(f func(*http.Request)) []Option {
		return []Option{ByParam("id"), WithIdempotency(false, makes(f, "sender"))}
	}},
	"WithReply": {refused: true, options: func(f func(*http.Request)) []Option {
		reply := func(w http.ResponseWriter, r *http.Request, refusal Refusal) {
			w.Header().Set("X-Own", "1")
			f(r)
			refusal.Write(w)
		}
		return []Option{ByParam("id"), WithIdempotency(false, NoSender), WithReply(reply)}
	}},
	"Observer.Event": {refused: true, observe: true, options: func(func(*http.Request)) []Option {
		return []Option{ByParam("id"), WithIdempotency(false, NoSender)}
	}},
}

// A trial calls the function bad in a place, for requests with the header X-Bad.
type trial struct {
	*world
	place
	bad  func() // what the function does
	m    *Middleware
	h    http.Handler
	log  logbook.Book
	runs int
}

// everyPlace runs f for each place, with net/http and gin, with and without an Idempotency-Key. One request may wait
// for a key, and 16 for all keys together. In the end nothing may be left in use.
func everyPlace(t *testing.T, f func(w *trial, key string)) {
	for name, p := range places {
		for _, host := range hosts[:2] {
			for _, key := range []string{"", "k"} {
				if key == "" && (name == "WithIdempotency" || p.refused) {
					continue
				}
				if p.refused {
					key = `"malformed`
				}
				bubbleOf(t, fmt.Sprintf("%s, %s, key %q", name, host.name, key), 1, func(w *world) {
					s := newTrial(w, p, host)
					f(s, key)
					if n := len(s.m.admission.used); n != 0 {
						w.Errorf("left in use: %v", s.m.admission.used)
					}
				})
			}
		}
	}
}

type badKey struct{}

func newTrial(w *world, p place, host host) *trial {
	s := &trial{world: w, place: p}
	observer := core.Observer{}
	if p.observe {
		observer.Event = func(ctx context.Context, _ core.Event) {
			if ctx.Value(badKey{}) != nil {
				s.bad()
			}
		}
	}

	locker := w.replica(core.WithLogger(s.log.Logger()), core.WithObserver(observer))
	s.m = middleware(w, locker, append(p.options(func(r *http.Request) {
		if r.Header.Get("X-Bad") != "" {
			s.bad()
		}
	}), WithMaxWaiters(1))...)

	inner := host.handler(s.m, func(w http.ResponseWriter, _ *http.Request) { s.runs++; fmt.Fprint(w, "ran") })
	s.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Bad") != "" {
			r = r.WithContext(context.WithValue(r.Context(), badKey{}, true))
		}
		inner.ServeHTTP(w, r)
	})

	return s
}

// sends sends a request, for which the function is bad or not.
func (w *trial) sends(key string, bad bool) reply {
	var header []string
	if key != "" {
		header = append(header, "Idempotency-Key", key)
	}
	if bad {
		header = append(header, "X-Bad", "1")
	}
	return call(w.h, "PUT", "/orders/1", "body", header...)
}

// answered checks the response to a request whose function has returned.
func (w *trial) answered(got reply) {
	w.Helper()
	if w.refused {
		got.expect(w, 400, EventIdempotencyKey)
		return
	}
	got.ok(w, "ran")
}

// goesOn checks that further requests for the same resource run at once, also with the same Idempotency-Key.
func (w *trial) goesOn(key string) {
	w.Helper()
	began := time.Now()
	for _, key := range []string{"another", strings.Trim(key, `"`), ""} {
		w.sends(key, false).ok(w, "ran")
	}
	between(w.world, "what comes afterwards", time.Since(began), 0, 0)
}

// If a function panics, its request gets 500, and the log has the stack. If the function of WithReply panics, the
// default refusal is written. If an observer panics, the response does not change. All keys are free afterwards.
func TestFunctionsThatPanic(t *testing.T) {
	for _, what := range []any{"boom", http.ErrAbortHandler} {
		everyPlace(t, func(w *trial, key string) {
			w.bad = func() { panic(what) }
			got := w.sends(key, true)
			if w.refused {
				got.expect(w, 400, EventIdempotencyKey)
			} else {
				got.expect(w, 500, EventMisconfigured)
				w.log.Want(w, 1, "httplock: misconfigured", "panicked")
			}
			if got.header.Get("X-Own") != "" || w.runs != 0 {
				w.Errorf("%d runs, %v", w.runs, got.header)
			}
			w.log.Want(w, 1, fmt.Sprint(what), "callback_test.go")
			w.goesOn(key)
		})
	}
}

// If a function ends its goroutine, only its request ends. The log has the stack.
func TestFunctionsThatEndTheirGoroutine(t *testing.T) {
	everyPlace(t, func(w *trial, key string) {
		w.bad = runtime.Goexit
		over := make(chan bool)
		go func() {
			defer close(over)
			w.sends(key, true)
			w.Error("it went on")
		}()
		<-over
		w.log.Want(w, 1, "runtime.Goexit", "callback_test.go")
		w.goesOn(key)
	})
}

// Functions that block delay only their own requests, even if these are many.
func TestFunctionsThatBlock(t *testing.T) {
	everyPlace(t, func(w *trial, key string) {
		until := make(chan bool)
		defer close(until)
		w.bad = func() { <-until }

		const blocked = 20
		var replies []func() reply
		for i := range blocked {
			each := key
			if key == "k" {
				each = fmt.Sprint("blocked", i)
			}
			replies = append(replies, background(func() reply { return w.sends(each, true) }))
			synctest.Wait()
		}

		w.goesOn(key)
		time.Sleep(time.Minute)
		w.goesOn("later")

		for _, got := range replies {
			select {
			case until <- true:
			case <-time.After(time.Minute):
				w.Fatal("it does not block")
			}
			synctest.Wait()
			w.answered(got())
		}
	})
}

// The time of a function does not count as waiting. A request runs even if its function takes longer than WithMaxWait.
func TestFunctionsThatAreSlow(t *testing.T) {
	everyPlace(t, func(w *trial, key string) {
		w.bad = func() { time.Sleep(defaults.maxWait + time.Second) }
		w.nodes[0].Slow(10 * time.Millisecond)
		began := time.Now()
		w.answered(w.sends(key, true))
		between(w.world, "the function", time.Since(began), defaults.maxWait+time.Second, defaults.maxWait+2*time.Second)
		w.nodes[0].Up()
		w.goesOn(key)
	})
}
