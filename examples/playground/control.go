package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A control is the page's server. Its users can kill processes of the playground: so it serves this
// machine alone, and no page but its own.
type control struct {
	p       *playground
	port    string
	slowest time.Duration // that a reader of events may take; one that takes longer is dropped
	readers atomic.Int32
}

// mostReaders is how many may follow at a time.
const mostReaders = 16

// handler serves under a port of a loopback address.
func (p *playground) handler(addr net.Addr) http.Handler {
	_, port, _ := net.SplitHostPort(addr.String())
	c := &control{p: p, port: port, slowest: 5 * time.Second}
	return c.handler()
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /do", c.do)
	mux.HandleFunc("GET /events", c.events)
	mux.HandleFunc("GET /history", c.history)
	mux.Handle("GET /", page())
	return c.guarded(mux)
}

// guarded refuses what does not come from this machine, or comes from another page.
func (c *control) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", // the page sets its own
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
			"Cache-Control":           "no-store",
		} {
			w.Header().Set(name, value)
		}
		if err := c.allowed(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *control) allowed(r *http.Request) error {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("only for this machine, not for %s", r.RemoteAddr)
	}
	// A page elsewhere can have its own name resolve to 127.0.0.1.
	if !c.isOurs(r.Host) {
		return fmt.Errorf("there is no host %q here", r.Host)
	}
	// Browsers say which page a request comes from: all of them with POST, new ones always.
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return fmt.Errorf("not for pages of %s", origin)
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "", site == "same-origin", site == "none" && r.Method == http.MethodGet: // none: the address bar
	case r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate": // a link to the page
	default:
		return fmt.Errorf("not for other pages (%s)", site)
	}
	return nil
}

// isOurs reports whether a host is one under which this machine reaches itself.
func (c *control) isOurs(host string) bool {
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		if host == net.JoinHostPort(name, c.port) {
			return true
		}
	}
	return false
}

// isJSON reports whether a body says that it is. Another page can only send that after it has asked, and it is refused.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// do does what the page wants: 204, or 400, or 409 with the reason why it makes no sense now.
func (c *control) do(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r) {
		http.Error(w, "only application/json", http.StatusUnsupportedMediaType)
		return
	}
	var command Command
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	body.DisallowUnknownFields()
	if err := body.Decode(&command); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := body.Token(); !errors.Is(err, io.EOF) {
		http.Error(w, "more than one command", http.StatusBadRequest)
		return
	}
	err := c.p.do(command)
	_, refused := errors.AsType[refusal](err)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case refused:
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errMalformed):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, errEnding):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		c.p.tell(Event{Kind: isError, Text: err.Error()})
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// history is a download of the events that are kept, a line each.
func (c *control) history(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="playground.ndjson"`)
	events, _, _ := c.p.board.since(0)
	out := json.NewEncoder(w)
	for _, e := range events {
		if out.Encode(e) != nil { // the client is gone
			return
		}
	}
}

// backlog is how many events somebody who begins to follow is told of the past.
const backlog = 3000

// events sends the state and what happens, as it comes. Who does not read for too long is dropped; nothing is
// buffered for him.
func (c *control) events(w http.ResponseWriter, r *http.Request) {
	if c.readers.Add(1) > mostReaders {
		c.readers.Add(-1)
		http.Error(w, "too many follow already", http.StatusServiceUnavailable)
		return
	}
	defer c.readers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w: w, control: http.NewResponseController(w), slowest: c.slowest}
	n, states := max(0, c.p.board.end()-backlog), -1
	for s.err == nil {
		events, next, more := c.p.board.since(n)
		n = next
		if state, count := c.p.board.latest(); count != states && state != nil {
			states = count
			s.send("state", state)
		}
		if len(events) > 0 {
			text, err := json.Marshal(events)
			if err != nil {
				return
			}
			s.send("events", text)
		}
		s.flush()
		if !c.pause(r, more) {
			return
		}
	}
}

// pause waits for more, and then for a moment, so that what comes at once is sent at once. There is always more: a new
// state twice a second, which is also the heartbeat. It reports whether to go on.
func (c *control) pause(r *http.Request, more <-chan struct{}) bool {
	select {
	case <-more:
	case <-r.Context().Done():
	case <-c.p.ctx.Done():
	}
	return stage.Sleep(r.Context(), 50*time.Millisecond) == nil && c.p.ctx.Err() == nil
}

// A stream is server-sent events.
type stream struct {
	w       io.Writer
	control *http.ResponseController
	slowest time.Duration
	err     error // the first
}

func (s *stream) send(event string, data []byte) {
	if s.err == nil {
		s.err = s.control.SetWriteDeadline(time.Now().Add(s.slowest))
	}
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data)
	}
}

func (s *stream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
