package httplock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
)

// follows returns the state that follows s by the rules if h happens.
func follows(h trigger, s state) state {
	switch {
	case s >= stateSent: // these states are final
		return s
	case h == onBypass: // the middleware does not know what the client has got
		return stateBroken
	case s == stateStreaming && (h == onLeaseLost || h == onCutShort): // the client must see that a part is missing
		return stateBroken
	case h == onLeaseLost: // the client has got nothing
		return stateRefused
	case h == onCutShort: // a Recovery further out responds
		return stateDropped
	case h == onReturn && s == stateOversized: // a part of the response was not kept
		return stateRefused
	case h == onReturn:
		return stateSent
	case h == onBegin && s == stateOpen:
		return stateBuffered
	case h == onBegin: // the response has begun before
		return s
	case (h == onFlush || h == onStreamLimit) && s == stateBuffered, h == onFlush && s == stateStreaming:
		return stateStreaming
	case h == onBufferLimit && (s == stateBuffered || s == stateOversized):
		return stateOversized
	}
	return stateImpossible
}

// The table of transitions follows the rules in every state.
func TestLife(t *testing.T) {
	for h := range trigger(len(transitions)) {
		for s := range stateImpossible {
			if got, want := s.next(h), follows(h, s); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
		}
	}
}

// A script is a handler that brings its response to a state, and then makes something happen to it.
type script struct {
	state     state
	happening trigger
	panics    bool // it panics after the loss
	engine    *gin.Engine
}

func (s *script) once() bool { return s.state == stateOversized || s.happening == onBufferLimit }

func (s *script) run(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Own", "1")
	switch s.state {
	case stateBuffered:
		w.Write([]byte("half"))
	case stateStreaming:
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
	case stateOversized:
		w.Write(bytes.Repeat([]byte("x"), int(defaults.maxBuffered)+1))
	}

	switch s.happening {
	case onBegin:
		w.Write([]byte("more"))
	case onFlush:
		w.(http.Flusher).Flush()
	case onStreamLimit:
		w.Write(bytes.Repeat([]byte("x"), int(defaults.streamThreshold)))
	case onBufferLimit:
		w.Write(bytes.Repeat([]byte("x"), int(defaults.maxBuffered)))
	case onCutShort:
		panic(http.ErrAbortHandler)
	case onLeaseLost:
		expire(r.Context())
		if _, err := w.Write([]byte("late")); !errors.Is(err, core.ErrLost) {
			panic("written after the loss")
		}
		if s.panics {
			panic(http.ErrAbortHandler)
		}
	}
}

// Clients see the result of every transition in the table, with every host and over every protocol.
func TestLifeAsClientsSeeIt(t *testing.T) {
	race.SkipSweep(t)
	for st := range stateSent {
		for h := range trigger(len(transitions)) {
			if transitions[h][st] == stateImpossible || h == onBypass {
				continue
			}
			for _, panics := range []bool{false, true} {
				if panics && h != onLeaseLost {
					continue
				}
				bubbleOf(t, fmt.Sprintf("state %d, happening %d, panics %v", st, h, panics), 1, func(w *world) {
					seen(w, &script{state: st, happening: h, panics: panics})
				})
			}
		}
	}
}

func seen(w *world, s *script) {
	m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
	everywhere(w, m, s.run, func(of string, host host, server *server, protocol string) {
		var header []string
		if s.once() {
			header = []string{"Idempotency-Key", `"` + of + `"`}
		}

		st, whole := s.state, protocol == "HTTP/1.0" || host.hides // the response is kept back
		if whole && st == stateStreaming {
			st = stateBuffered
		}
		happening, panics := s.happening, s.panics
		if host.inside && happening == onCutShort { // the middleware does not see the panic
			happening = onReturn
		}

		end := st.next(happening)
		if whole && end == stateStreaming {
			end = stateBuffered
		}
		if end < stateSent {
			end = end.next(onReturn)
		}

		got := server.do(context.Background(), protocol, "PUT", "/orders/1", "body", header...)
		own := got.header.Get("X-Own") != ""
		switch {
		case end == stateSent && (got.err != nil || !own || !got.whole() && !host.inside):
			w.Errorf("%s: %d %.20q %v, want a whole answer", of, got.status, got.body, got.err)
		case end == stateBroken && got.err == nil:
			w.Errorf("%s: %d %.20q, want a broken connection", of, got.status, got.body)
		case end == stateRefused && panics && host.plain && !host.inside: // the panic reaches net/http
			if got.err == nil {
				w.Errorf("%s: %d %.20q, want a broken connection", of, got.status, got.body)
			}
		case end == stateRefused && (got.status < 500 || got.kind(w) == "" || own):
			w.Errorf("%s: %d %.20q %v, want a refusal", of, got.status, got.body, got.header)
		case end == stateDropped && (got.whole() && !swallowed(host) || own):
			w.Errorf("%s: %d %.20q %v, want nothing of the answer", of, got.status, got.body, got.header)
		}
	})
}

// swallowed reports whether the Recovery of a host turns http.ErrAbortHandler into an empty response, with or without
// the middleware. gin's own Recovery does so from 1.12 on.
func swallowed(h host) bool {
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	return !h.plain && call(h.handler(nil, abort), "PUT", "/orders/1", "").status == 200
}

// If bytes are written past the middleware, the connection is broken, with or without a loss, and nothing is recorded.
func TestBypassed(t *testing.T) {
	for _, how := range []string{"", "write", "lose"} {
		bubbleOf(t, how, 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
			runs := 0
			r := gin.New()
			r.Use(recovery)

			r.PUT("/other", func(c *gin.Context) { c.String(200, "hello") })
			r.PUT(hostPath, m.Lock, func(c *gin.Context) {
				runs++
				if how == "write" {
					c.String(201, "own")
				}
				if how == "lose" {
					expire(c.Request.Context())
				}
				c.Request.URL.Path = "/other"
				r.HandleContext(c)
			})

			s := w.serve(r)
			for _, protocol := range protocols {
				for range 2 {
					got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", "k"+protocol[5:])
					if got.err == nil {
						w.Errorf("%s: a clean answer: %d %q", protocol, got.status, got.body)
					}
					time.Sleep(time.Second) // the client may know of the end first
				}
			}

			if runs != 6 || w.events.count(EventMisconfigured) != 6 {
				w.Errorf("%d runs, counted %d times", runs, w.events.count(EventMisconfigured))
			}
		})
	}
}
