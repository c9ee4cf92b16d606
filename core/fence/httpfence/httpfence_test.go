package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/httpfence"
	"github.com/lockkit/lockkit/core/fence/redisfence"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// A world has clients that lock, and a service with a Redis of its own, in which it checks their tokens.
type world struct {
	*testing.T
	locks *locktest.Locker
	store redis.UniversalClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// Leases that last for long, on a machine that may stand still.
	locks := locktest.NewOn(t, testutil.NewNodes(t, 1), core.TTL(time.Minute), core.WithClockWindow(5*time.Second))
	return &world{t, locks, testutil.NewNodes(t, 1)[0].Client()}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// leases returns n leases on the key, each of them released, in the order of their tokens.
func (w *world) leases(key string, n int) (all []*core.Lease) {
	w.Helper()
	for range n {
		lease := must(w.locks.Acquire(w.Context(), key))
		testutil.Await(w, "released", func() bool { return lease.Release(w.Context()) == nil }) // late on a busy machine
		all = append(all, lease)
	}
	return all
}

// wantErr checks that err matches all of want.
func (w *world) wantErr(err error, want ...error) {
	w.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			w.Errorf("%v does not match %v", err, target)
		}
	}
}

const order = "{order:42}"

var set = redisfence.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

// write is the handler of the service: it writes the body, and checks the token.
func (w *world) write(rw http.ResponseWriter, r *http.Request) {
	body := must(io.ReadAll(r.Body))
	err := set.Run(r.Context(), w.store, []string{order}, body).Err()
	if httpfence.Refuse(rw, err) {
		return
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(rw, "written")
}

func (w *world) wantWritten(want string) {
	w.Helper()
	if got, _ := w.store.Get(w.Context(), order).Result(); got != want {
		w.Errorf("the order is %q, want %q", got, want)
	}
}

func keyOfPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// request returns a request to change the order.
func request(ctx context.Context, body string) *http.Request {
	return httptest.NewRequestWithContext(ctx, "PUT", "/order:42", strings.NewReader(body))
}

// call sends a request to a handler. The response has its request, as that of a client has.
func call(h http.Handler, r *http.Request) *http.Response {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	response := recorder.Result()
	response.Request = r
	return response
}

// wantRefusal checks that a response is a refusal, as a problem document that gives nothing away.
func (w *world) wantRefusal(response *http.Response, status int, kind string) {
	w.Helper()
	body := must(io.ReadAll(response.Body))
	var problem struct {
		Type, Title, Detail string
		Status              int
	}
	err := json.Unmarshal(body, &problem)
	if err != nil || response.StatusCode != status || problem.Status != status || problem.Type != "urn:lockkit:httpfence:"+kind ||
		problem.Title == "" || problem.Detail == "" || response.Header.Get("Content-Type") != "application/problem+json" {
		w.Errorf("%d %s (%v), want %d %s", response.StatusCode, body, err, status, kind)
	}
	if sent := response.Request.Header.Get(httpfence.Header); strings.Contains(string(body), "order:42") && sent != "" {
		w.Errorf("the response names the key: %s", body)
	}
}

// A client that is paused until a later holder has written is refused by the service, with the error that the service
// had. The later holder can write twice.
func TestStaleClientIsRefused(t *testing.T) {
	w := newWorld(t)
	service := httptest.NewServer(httpfence.Require(keyOfPath, http.HandlerFunc(w.write)))
	defer service.Close()
	send := func(lease *core.Lease, body string) (*http.Response, error) {
		r := must(http.NewRequestWithContext(t.Context(), "PUT", service.URL+"/order:42", strings.NewReader(body)))
		w.must(httpfence.SetLease(r, lease))
		response, err := http.DefaultClient.Do(r)
		w.must(err)
		t.Cleanup(func() { response.Body.Close() })
		return response, httpfence.Refused(response)
	}
	leases := w.leases("order:42", 2)
	earlier, later := leases[0], leases[1]

	for i, lease := range []*core.Lease{earlier, earlier, later} {
		response, err := send(lease, fmt.Sprint(i))
		w.must(err)
		if response.StatusCode != 200 {
			t.Fatal(response.Status)
		}
		w.wantWritten(fmt.Sprint(i))
	}

	response, err := send(earlier, "late")
	w.wantRefusal(response, 409, "stale")
	w.wantErr(err, fence.ErrStale, core.ErrLost)
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || op.Op != core.OpCheck || op.Err != core.ErrLost || op.Reason != core.LossStale || op.Key != "order:42" ||
		!strings.Contains(err.Error(), fmt.Sprint(earlier.FencingToken())) {
		t.Errorf("%+v", op)
	}
	w.wantWritten("2")

	_, err = send(later, "again")
	w.must(err)
	w.wantWritten("again")
}

// No request has the header unless the client asks for it, and no service takes it unless it asks for it.
func TestOnlyWhereAsked(t *testing.T) {
	w := newWorld(t)
	w.must(w.locks.Do(t.Context(), "order:42", func(ctx context.Context) error {
		r := request(ctx, "a")
		response := call(httpfence.Require(keyOfPath, http.HandlerFunc(w.write)), r)
		w.wantRefusal(response, 400, "header")

		w.must(httpfence.Set(r))
		outside := r.WithContext(t.Context()) // as it comes to the service
		response = call(http.HandlerFunc(w.write), outside)
		if body := must(io.ReadAll(response.Body)); response.StatusCode != 500 || !strings.Contains(string(body), "no lease") {
			t.Errorf("%d %s", response.StatusCode, body)
		}
		w.wantWritten("")

		response = call(httpfence.Require(keyOfPath, http.HandlerFunc(w.write)), outside)
		if response.StatusCode != 200 {
			t.Error(response.Status)
		}
		return nil
	}))
}

// A request whose header cannot be used gets 400 before its handler runs.
func TestHeadersThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	var ran atomic.Int32
	h := httpfence.Require(keyOfPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) }))
	now := time.Now().UnixMicro()
	good := fmt.Sprintf("key=order%%3A42&prefix=lockkit%%3A&token=%d", now)
	for _, values := range [][]string{
		nil, {""}, {" "}, {good, good}, {good + ", " + good},
		{good + "&token=1"}, {good + "&key=order%3A42"}, {good + "&more=1"},
		{strings.Replace(good, "%3A42", "%3A43", 1)}, {strings.Replace(good, "%3A42", "%3a42%20", 1)}, // another key
		{"prefix=lockkit%3A&token=1"}, {"key=order%3A42&token=1"}, {"key=order%3A42&prefix=lockkit%3A"},
		{"key=order%3A42&prefix=&token=1"}, {"key=order%3A42;prefix=lockkit%3A;token=1"}, {"key=%zz&prefix=a&token=1"},
		{strconv.FormatInt(now, 10)}, {"stale"},
	} {
		r := request(t.Context(), "")
		r.Header[httpfence.Header] = values
		w.wantRefusal(call(h, r), 400, "header")
	}
	for _, token := range []string{"", "0", "-1", "+1", "1.5", "1e15", "0x1", "9223372036854775808", "99999999999999999999", "9223372036854775807"} {
		r := request(t.Context(), "")
		r.Header.Set(httpfence.Header, url.Values{"key": {"order:42"}, "prefix": {"lockkit:"}, "token": {token}}.Encode())
		w.wantRefusal(call(h, r), 400, "header")
	}
	if ran.Load() != 0 {
		t.Errorf("the handler ran %d times", ran.Load())
	}

	r := request(t.Context(), "")
	r.Header.Set(httpfence.Header, good)
	if response := call(h, r); response.StatusCode != 200 || ran.Load() != 1 {
		t.Errorf("a header that can be used: %s", response.Status)
	}
}

// A token may be ahead of the service's clock by two days, and not more: it would lock out all holders until then.
func TestTokenFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receive := func(ahead time.Duration) error {
			r := request(t.Context(), "")
			token := time.Now().Add(ahead).UnixMicro()
			r.Header.Set(httpfence.Header, fmt.Sprintf("key=k&prefix=p&token=%d", token))
			_, err := httpfence.Receive(r, "k")
			return err
		}
		if err := receive(48 * time.Hour); err != nil {
			t.Error(err)
		}
		if err := receive(48*time.Hour + time.Microsecond); !errors.Is(err, httpfence.ErrHeader) {
			t.Error(err)
		}
	})
}

// The store of the service remembers a key for 31 days. A token that is older is refused, and the client learns why.
func TestTokenThatIsTooOld(t *testing.T) {
	var old *core.Lease
	synctest.Test(t, func(t *testing.T) { // bubbles begin in the year 2000
		old = must(locktest.New(t).Acquire(t.Context(), "order:42"))
	})
	w := newWorld(t)
	r := request(t.Context(), "a")
	w.must(httpfence.SetLease(r, old))
	response := call(httpfence.Require(keyOfPath, http.HandlerFunc(w.write)), r)
	w.wantRefusal(response, 409, "too_old")
	err := httpfence.Refused(response)
	w.wantErr(err, fence.ErrTooOld)
	if errors.Is(err, core.ErrLost) || errors.Is(err, fence.ErrStale) {
		t.Errorf("%v is a loss", err)
	}
	w.wantWritten("")
}

// The innermost lease counts, whether it was received or acquired.
func TestInnermostLeaseCounts(t *testing.T) {
	w := newWorld(t)
	// tokenOf returns the lease that a request has that is sent in ctx.
	sent := func(ctx context.Context) string {
		w.Helper()
		r := request(ctx, "")
		w.must(httpfence.Set(r))
		return must(url.ParseQuery(r.Header.Get(httpfence.Header))).Get("key")
	}
	received := func(ctx context.Context) context.Context {
		r := request(ctx, "")
		w.must(httpfence.SetLease(r, w.leases("received", 1)[0]))
		return must(httpfence.Receive(r, "received"))
	}
	want := func(ctx context.Context, want string) {
		w.Helper()
		if got := sent(ctx); got != want {
			t.Errorf("the innermost lease is on %q, want %q", got, want)
		}
	}

	want(received(t.Context()), "received") // and is passed on to a third service
	w.must(w.locks.Do(t.Context(), "outer", func(ctx context.Context) error {
		want(ctx, "outer")
		inside := received(ctx)
		want(inside, "received")
		return w.locks.Do(inside, "inner", func(ctx context.Context) error {
			want(ctx, "inner")
			want(received(ctx), "received")
			return nil
		})
	}))
}

// A key may have any bytes, and the prefix is a part of its identity.
func TestKeysOfAllKinds(t *testing.T) {
	w := newWorld(t)
	other := locktest.New(t, core.WithKeyPrefix("other=&;, "))
	for _, key := range []string{"a", "ä", "a b", "a&key=b", "a\r\nb", "a\x00", "\xff", "%41", "+", strings.Repeat("k", 500)} {
		for _, lease := range []*core.Lease{w.leases(key, 1)[0], must(other.Acquire(t.Context(), key))} {
			r := request(t.Context(), "")
			w.must(httpfence.SetLease(r, lease))
			ctx, err := httpfence.Receive(r, key)
			w.must(err)
			again := request(ctx, "")
			w.must(httpfence.Set(again))
			if first, second := r.Header.Get(httpfence.Header), again.Header.Get(httpfence.Header); first != second {
				t.Errorf("%q was received as %q", first, second)
			}
		}
	}
}

// Refuse answers nothing but refused tokens and headers.
func TestRefuseOfOtherErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("other"), core.ErrLost, core.ErrDone, fence.ErrUnknown, context.Canceled} {
		w := httptest.NewRecorder()
		if httpfence.Refuse(w, err) || w.Body.Len() > 0 || len(w.Header()) > 0 {
			t.Errorf("%v was answered with %s", err, w.Body)
		}
	}
	w := httptest.NewRecorder()
	if !httpfence.Refuse(w, fmt.Errorf("booking: %w", fence.ErrStale)) || w.Code != 409 {
		t.Errorf("a wrapped error was answered with %d", w.Code)
	}
}

// A response that is no refusal of httpfence is no error.
func TestRefusedOfOtherResponses(t *testing.T) {
	if err := httpfence.Refused(nil); err != nil {
		t.Error(err)
	}
	for _, status := range []int{200, 400, 409, 500} {
		for _, value := range []string{"", "other", "header", "stale"} {
			response := &http.Response{StatusCode: status, Header: http.Header{httpfence.Header: {value}}}
			err := httpfence.Refused(response)
			if isStale := status == 409 && value == "stale"; isStale != errors.Is(err, fence.ErrStale) || isStale != (err != nil) {
				t.Errorf("%d %q: %v", status, value, err)
			}
		}
	}
}

// Bad input is an error that says what to do.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	limit := must(semaphore.New(w.locks.Locker, 2))
	wantInvalid := func(err error, said string) {
		t.Helper()
		w.wantErr(err, core.ErrInvalid)
		if !strings.Contains(fmt.Sprint(err), said) {
			t.Errorf("%v does not say %q", err, said)
		}
	}
	receive := func(r *http.Request, key string) error {
		_, err := httpfence.Receive(r, key)
		return err
	}
	r := &http.Request{}
	wantInvalid(httpfence.Set(nil), "the request is nil")
	wantInvalid(httpfence.SetLease(nil, nil), "the request is nil")
	wantInvalid(httpfence.Set(r), "the context has no lease")
	wantInvalid(httpfence.SetLease(r, nil), "was not made by")
	wantInvalid(receive(nil, "k"), "the request is nil")
	wantInvalid(receive(r, ""), "is empty")
	w.must(limit.Do(t.Context(), "api", func(ctx context.Context) error {
		wantInvalid(httpfence.Set(r.WithContext(ctx)), "permit")
		return nil
	}))
	if r.Header != nil {
		t.Errorf("headers were set: %v", r.Header)
	}
	w.must(httpfence.SetLease(r, w.leases("k", 1)[0]))
	w.must(receive(r, "k"))

	keyless := httpfence.Require(func(*http.Request) string { return "" }, http.HandlerFunc(w.write))
	if response := call(keyless, r); response.StatusCode != 500 {
		t.Error(response.Status)
	}
}

// Whatever a header has, Receive does not panic, and what it takes is passed on as it is.
func FuzzReceive(f *testing.F) {
	f.Add("key=k&prefix=lockkit%3A&token=1764465600000000", "k")
	f.Add("key=%FF&prefix=+&token=1", "\xff")
	f.Add("key=k&key=k", "k")
	f.Fuzz(func(t *testing.T, value, key string) {
		r := request(t.Context(), "")
		r.Header[httpfence.Header] = []string{value}
		ctx, err := httpfence.Receive(r, key)
		if err != nil {
			return
		}
		again := request(ctx, "")
		if err := httpfence.Set(again); err != nil {
			t.Fatal(err)
		}
		before, after := must(url.ParseQuery(value)), must(url.ParseQuery(again.Header.Get(httpfence.Header)))
		token := must(strconv.ParseUint(before.Get("token"), 10, 63))
		if after.Get("key") != key || after.Get("prefix") != before.Get("prefix") || after.Get("token") != fmt.Sprint(token) {
			t.Errorf("%q was received as %v", value, after)
		}
	})
}

// A refusal replaces the response that the handler had begun to describe: it is whole, and no cache keeps it.
func TestRefusalReplacesTheResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("ETag", `"of the order"`)
		w.Header().Set("Cache-Control", "max-age=100")
		httpfence.Refuse(w, fence.ErrStale)
	}))
	defer server.Close()

	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || !json.Valid(body) || response.Header.Get("ETag") != "" || response.Header.Get("Cache-Control") != "" {
		t.Errorf("%q, %v, %v", body, err, response.Header)
	}
}
