package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/lockkit/lockkit/httplock"
)

// answers returns handlers, by the kind of their answer.
func answers() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"short":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "short") },
		"empty":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "") },
		"echo":         func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
		"40 kB":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 40<<10)) },
		"two statuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) },
		"late status":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "made"); w.WriteHeader(500) },
		"error":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) },
		"redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/orders/2", http.StatusSeeOther) },
		"sniffed":      func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		},
		"own type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			io.WriteString(w, "x")
		},
		"removed": func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("X-Outer"); io.WriteString(w, "x") },
		"set again": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Outer", "inner")
			io.WriteString(w, "x")
		},
		"two values": func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-Two"] = []string{"1", "2"} },
		"length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			io.WriteString(w, "body")
		},
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "body")
		},
		"flushes": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "ha")
			flush(w)
			io.WriteString(w, "lf")
		},
		"flush first": func(w http.ResponseWriter, _ *http.Request) { flush(w); io.WriteString(w, "body") },
		"late header": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.Header().Set("X-Late", "late") },
		"not UTF-8":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "\xff\xfe") },
		"path value":  func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.PathValue("id")) },
		"panic":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"panic, half": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half")
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"later": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "1"); w.WriteHeader(409) },
		"stands": func(w http.ResponseWriter, r *http.Request) {
			httplock.Record(r)
			w.WriteHeader(500)
			io.WriteString(w, "x")
		},
	}
	for _, status := range append(outcomes(), invitations()...) {
		all[fmt.Sprint(status)] = func(w http.ResponseWriter, _ *http.Request) {
			if w.WriteHeader(status); status != 204 && status != 304 {
				io.WriteString(w, "text")
			}
		}
	}
	return all
}

func outcomes() []int {
	return []int{200, 201, 202, 203, 204, 206, 301, 304, 308, 400, 402, 404, 405, 409, 410, 412, 415, 418, 422, 451}
}

func invitations() []int {
	return []int{401, 403, 407, 408, 423, 425, 429, 499, 500, 501, 502, 503, 504, 507}
}

// recorded reports whether the answer is recorded, so that a repetition gets it.
func recorded(kind string) bool {
	if slices.Contains([]string{"cut short", "panic", "panic, half", "later"}, kind) {
		return false
	}
	return !slices.ContainsFunc(invitations(), func(status int) bool { return kind == fmt.Sprint(status) })
}

// Behind chi and echo, a handler answers as it does without the middleware, with an Idempotency-Key and without. A
// repetition gets the same answer: the recorded one, or a new one if the handler runs again.
func TestTableOfAnswers(t *testing.T) {
	m := newMiddleware(t)

	kinds := answers()
	for name, router := range map[string]router{"chi": withChi, "echo": withEcho} {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			h := kinds[kind]
			runs := 0
			counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++; h(w, r) })
			bare, locked := served(t, unlocked(name, h)), served(t, router(m, counted, counted))
			want := send(t, bare, "")
			plain := send(t, locked, "")
			runs = 0
			first, again := send(t, locked, name+kind), send(t, locked, name+kind)
			for what, got := range map[string]answer{"locked": plain, "once": first, "repeated": again} {
				if got.text != want.text {
					t.Errorf("%s, %s, %s: %s, bare %s", name, kind, what, got.text, want.text)
				}
			}
			if replayed := runs == 1; replayed != recorded(kind) || again.replayed != replayed {
				t.Errorf("%s, %s: %d runs, replayed %v", name, kind, runs, again.replayed)
			}
			bare.Close()
			locked.Close()
		}
	}
}

// unlocked returns the handler behind the router alone.
func unlocked(name string, h http.Handler) http.Handler {
	if name == "chi" {
		r := chi.NewRouter()
		r.Method("PUT", "/orders/{id}", h)
		return r
	}
	e := echo.New()
	e.PUT("/orders/:id", func(c echo.Context) error {
		c.Request().SetPathValue("id", c.Param("id"))
		return echo.WrapHandler(h)(c)
	})
	return e
}

// served starts a server. A middleware further out sets a header.
func served(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "outer")
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	return s
}

// An answer is a response as the client sees it, without the parts that may differ.
type answer struct {
	text     string
	replayed bool
}

func send(t *testing.T, s *httptest.Server, key string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/orders/1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%q", key))
	}
	res, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(req)
	if err != nil {
		return answer{text: "broken"}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	replayed := res.Header.Get("Idempotent-Replayed") == "true"
	for _, name := range []string{"Date", "Content-Length", "Idempotent-Replayed", "Connection"} {
		res.Header.Del(name)
	}
	if err != nil {
		return answer{"broken", replayed}
	}
	return answer{fmt.Sprintf("%d %v %.30q of %d", res.StatusCode, res.Header, body, len(body)), replayed}
}
