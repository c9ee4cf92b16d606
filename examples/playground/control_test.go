package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// idle returns a playground without nodes and replicas.
func idle(t *testing.T) *playground {
	t.Helper()
	p := &playground{board: newBoard()}
	p.ctx, p.end = context.WithCancel(t.Context())
	var err error
	if p.store, err = startStore(p.tell); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(); p.store.close() })
	return p
}

// A request from another machine, or from a page of another site, does nothing.
func TestRefusals(t *testing.T) {
	h := idle(t).handler(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8321})
	const body = `{"do":"reset"}`
	for name, c := range map[string]struct {
		method, path, from, host, body string
		header                         map[string]string
		want                           int
	}{
		"curl":                     {want: 204},
		"the page":                 {header: map[string]string{"Origin": "http://127.0.0.1:8321", "Sec-Fetch-Site": "same-origin"}, want: 204},
		"the page at localhost":    {host: "localhost:8321", header: map[string]string{"Origin": "http://localhost:8321"}, want: 204},
		"IPv6":                     {from: "[::1]:5", host: "[::1]:8321", want: 204},
		"another machine":          {from: "192.0.2.1:5", want: 403},
		"no address":               {from: "pipe", want: 403},
		"another name":             {host: "evil.example:8321", want: 403},
		"another name, to read":    {method: "GET", path: "/history", host: "evil.example:8321", want: 403},
		"another name, the page":   {method: "GET", path: "/", host: "evil.example", want: 403},
		"another port":             {host: "127.0.0.1:8322", want: 403},
		"no port":                  {host: "127.0.0.1", want: 403},
		"another page":             {header: map[string]string{"Origin": "http://evil.example"}, want: 403},
		"a page at another port":   {header: map[string]string{"Origin": "http://127.0.0.1:80"}, want: 403},
		"a page without an origin": {header: map[string]string{"Origin": "null"}, want: 403},
		"a page with TLS":          {header: map[string]string{"Origin": "https://127.0.0.1:8321"}, want: 403},
		"localhost is another":     {header: map[string]string{"Origin": "http://localhost:8321"}, want: 403},
		"cross-site":               {header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		"same-site, another port":  {header: map[string]string{"Sec-Fetch-Site": "same-site"}, want: 403},
		"cross-site, to read":      {method: "GET", path: "/events", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		"cross-site, a download": {method: "GET", path: "/history", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
			want: 403},
		"none is not for commands": {header: map[string]string{"Sec-Fetch-Site": "none"}, want: 403},
		"the address bar":          {method: "GET", path: "/history", header: map[string]string{"Sec-Fetch-Site": "none"}, want: 200},
		"a form":                   {header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, want: 415},
		"a form of text":           {header: map[string]string{"Content-Type": "text/plain"}, want: 415},
		"no type":                  {header: map[string]string{"Content-Type": ""}, want: 415},
		"JSON with a charset":      {header: map[string]string{"Content-Type": "application/json; charset=utf-8"}, want: 204},
		"by GET":                   {method: "GET", want: 404},
		"no JSON":                  {body: "do=reset", want: 400},
		"an unknown field":         {body: `{"do":"reset","please":1}`, want: 400},
		"two commands":             {body: body + body, want: 400},
		"too long":                 {body: `{"do":"reset","name":"` + strings.Repeat("x", 5<<10) + `"}`, want: 400},
		"an unknown command":       {body: `{"do":"win"}`, want: 400},
		"an unknown node":          {body: `{"do":"node_kill","node":5}`, want: 400},
		"no node":                  {body: `{"do":"node_kill"}`, want: 400},
		"an unknown replica":       {body: `{"do":"kill","replica":"d"}`, want: 400},
		"no replica":               {body: `{"do":"kill"}`, want: 400},
		"an unknown scenario":      {body: `{"do":"scenario","name":"d"}`, want: 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), cmp.Or(c.method, "POST"), cmp.Or(c.path, "/do"), strings.NewReader(cmp.Or(c.body, body)))
			r.RemoteAddr, r.Host = cmp.Or(c.from, "127.0.0.1:5"), cmp.Or(c.host, "127.0.0.1:8321")
			r.Header.Set("Content-Type", "application/json")
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

// Links to the page work, from any site.
func TestLink(t *testing.T) {
	h := idle(t).handler(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8321})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5", "127.0.0.1:8321"
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusForbidden {
		t.Error(w.Body)
	}
}

// served serves a playground on a port.
func served(t *testing.T, p *playground) (c *control, url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	c = &control{p: p, port: port, slowest: 5 * time.Second}
	server.Config.Handler = c.handler()
	server.Start()
	t.Cleanup(func() { p.end(); server.Close() })
	return c, server.URL
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// A reader of the events gets the state and the past events, and then new events.
func TestEvents(t *testing.T) {
	p := idle(t)
	_, url := served(t, p)
	for range backlog + 10 {
		p.tell(Event{Kind: isGrant, Replica: "a"})
	}
	p.board.post([]byte(`{"now":1}`))

	res := get(t, url+"/events")
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Error(got)
	}
	lines := bufio.NewReaderSize(res.Body, 1<<20)
	next := func() string {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}

	past := []string{next(), next(), next(), next()}
	if past[0] != "event: state" || past[1] != `data: {"now":1}` || past[3] != "event: events" {
		t.Fatalf("%q", past)
	}
	var events []Event
	if err := json.Unmarshal([]byte(strings.TrimPrefix(next(), "data: ")), &events); err != nil || len(events) != backlog {
		t.Fatalf("%d events, %v", len(events), err)
	}
	next()

	p.tell(Event{Kind: isDown, Node: new(3)})
	if next() != "event: events" || !strings.Contains(next(), `"kind":"node_down","node":3`) {
		t.Error("what happens then is not told")
	}
}

// A reader that does not read is dropped. Events do not wait for it.
func TestReadersThatDoNotRead(t *testing.T) {
	p := idle(t)
	c, url := served(t, p)
	c.slowest = 100 * time.Millisecond
	get(t, url+"/events") // without reading the body
	testutil.Await(t, "it follows", func() bool { return c.readers.Load() == 1 })
	text := strings.Repeat("x", 1<<20)
	testutil.Await(t, "it is dropped", func() bool {
		p.board.add(Event{Text: text})
		return c.readers.Load() == 0
	})
}

func TestTooManyReaders(t *testing.T) {
	p := idle(t)
	c, url := served(t, p)
	p.board.post([]byte(`{}`))
	for range mostReaders {
		get(t, url+"/events")
	}
	if res := get(t, url+"/events"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d readers, and one more is answered %s", mostReaders, res.Status)
	}
	if n := c.readers.Load(); n != mostReaders {
		t.Errorf("%d readers", n)
	}
}

func TestHistoryDownload(t *testing.T) {
	p := idle(t)
	_, url := served(t, p)
	p.tell(Event{Kind: isGrant, Replica: "a", Key: "k", Token: 7})
	p.tell(Event{Kind: isDown, Node: new(0)})
	res := get(t, url+"/history")
	body, err := io.ReadAll(res.Body)
	if err != nil || bytes.Count(body, []byte("\n")) != 2 || !bytes.Contains(body, []byte(`"token":7`)) || !strings.Contains(res.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v %s, %v", res.Header, body, err)
	}
}

// The store is for replicas. It takes no request that a page of another site can send.
func TestStoreTakesJSONOnly(t *testing.T) {
	p := idle(t)
	for kind, want := range map[string]int{"text/plain": http.StatusBadRequest, "application/json": http.StatusOK} {
		res, err := http.Post("http://"+p.store.addr, kind, strings.NewReader(`{"key":"k","token":5}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", kind, res.Status)
		}
	}
}

// A read with a greater token fences off writes with smaller tokens. Lost updates are counted.
func TestStore(t *testing.T) {
	var told []string
	s := &store{tell: func(e Event) { told = append(told, e.Kind+" "+e.Text) }, fencing: true, fenced: map[string]*number{}, naive: map[string]*number{}}
	do := func(a access) bool { a.Key = "k"; return s.access(&a) }
	if !do(access{Token: 1}) || !do(access{Token: 2}) || do(access{Token: 1, Write: true, Value: 1}) || !do(access{Token: 2, Write: true, Value: 1}) {
		t.Error("with fencing")
	}

	s.setFencing(false)
	if !do(access{Token: 1, Write: true, Value: 1}) {
		t.Error("without fencing a stale write is refused")
	}

	for range 2 {
		do(access{Naive: true, Write: true, Value: 1})
	}
	with, lostWith, lostWithout := s.updates()
	if with != 2 || lostWith != 1 || lostWithout != 1 {
		t.Errorf("%d updates, lost %d and %d", with, lostWith, lostWithout)
	}
	if got, want := strings.Join(told, ","), "write read,write read,write refused,write accepted,write stale,update ,update lost"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}

	s.settle()
	if _, lostWith, _ := s.updates(); lostWith != 0 {
		t.Errorf("%d lost after it was settled", lostWith)
	}
}

func TestListen(t *testing.T) {
	first, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := listen(first.Addr().String())
	if err != nil {
		t.Fatalf("a port that is taken: %v", err)
	}
	defer second.Close()
	for _, addr := range []string{"0.0.0.0:0", ":0", "8321", "192.0.2.1:80"} {
		if l, err := listen(addr); err == nil {
			l.Close()
			t.Errorf("it serves at %s", addr)
		}
	}
}

func TestOptions(t *testing.T) {
	if err := (options{length: time.Second}).check(nil); err != nil {
		t.Error(err)
	}
	if err := (options{length: -time.Second}).check([]string{"page"}); err == nil || !strings.Contains(err.Error(), "page") || !strings.Contains(err.Error(), "-1s") {
		t.Errorf("%v, want all that is wrong", err)
	}
}
