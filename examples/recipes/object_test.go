package recipes

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A bucket is a store of objects with ETags and conditional writes, as S3 is. As there, an ETag is a hash of the content.
type bucket struct {
	mu          sync.Mutex
	objects     map[string]string      // by path
	beforeWrite atomic.Pointer[func()] // is called once, before a write takes effect
}

func etagOf(content string) string { return fmt.Sprintf(`"%x"`, md5.Sum([]byte(content))) }

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPut {
		if f := b.beforeWrite.Swap(nil); f != nil {
			(*f)()
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	content, exists := b.objects[r.URL.Path]
	match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case r.Method == http.MethodGet && exists:
		w.Header().Set("ETag", etagOf(content))
		io.WriteString(w, content)
	case r.Method == http.MethodGet, match != "" && !exists:
		http.Error(w, "no such key", http.StatusNotFound)
	case match != "" && match != etagOf(content), noneMatch == "*" && exists:
		http.Error(w, "a condition does not hold", http.StatusPreconditionFailed)
	default:
		b.objects[r.URL.Path] = string(body)
	}
}

// An objectTest has a bucket with one object, and holders that write a letter each to its end.
type objectTest struct {
	*testing.T
	bucket *bucket
	url    string
	locks  *locktest.Locker
}

func newObjectTest(t *testing.T) *objectTest {
	b := &bucket{objects: map[string]string{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	locks := locktest.NewOn(t, testutil.NewNodes(t, 1), core.TTL(time.Minute), core.WithClockWindow(5*time.Second))
	return &objectTest{t, b, server.URL + "/letters", locks}
}

// holder returns the context of a lease that is over, and that lives on: its holder does not look.
func (o *objectTest) holder() (ctx context.Context) {
	o.Helper()
	lease, err := o.locks.Acquire(o.Context(), "letters")
	if err != nil {
		o.Fatal(err)
	}
	ctx = context.WithoutCancel(lease.Context())
	if err := lease.Release(o.Context()); err != nil {
		o.Fatal(err)
	}
	return ctx
}

func (o *objectTest) write(ctx context.Context, letter string) error {
	return ChangeObject(ctx, http.DefaultClient, o.url, func(content []byte) []byte { return append(content, letter...) })
}

func (o *objectTest) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

func (o *objectTest) want(content string) {
	o.Helper()
	o.bucket.mu.Lock()
	defer o.bucket.mu.Unlock()
	if _, got, _ := strings.Cut(o.bucket.objects["/letters"], "\n"); got != content {
		o.Errorf("the object has %q, want %q", got, content)
	}
}

func (o *objectTest) wantStale(err error) {
	o.Helper()
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || !errors.Is(err, core.ErrLost) || op.Reason != core.LossStale {
		o.Errorf("a stale holder: %v", err)
	}
}

// A holder that is paused before it reads the object is refused if a later one has written. The later one can write
// again.
func TestHolderPausedBeforeTheRead(t *testing.T) {
	o := newObjectTest(t)
	earlier, later := o.holder(), o.holder()
	o.must(o.write(earlier, "a"))
	o.must(o.write(earlier, "b"))
	o.must(o.write(later, "c"))
	o.wantStale(o.write(earlier, "d"))
	o.must(o.write(later, "e"))
	o.want("abce")
}

// A holder that is paused between its read and its write is refused by the store, reads again, and learns that a later
// holder has written: whether there was an object or not.
func TestHolderPausedBeforeTheWrite(t *testing.T) {
	for _, exists := range []bool{false, true} {
		o := newObjectTest(t)
		first, earlier, later := o.holder(), o.holder(), o.holder()
		want := "c"
		if exists {
			o.must(o.write(first, "a"))
			want = "ac"
		}
		o.beforeWrite(func() { o.must(o.write(later, "c")) })
		o.wantStale(o.write(earlier, "b"))
		o.want(want)
	}
}

// If the earlier holder writes between the read and the write of the later one, the later one reads again: both writes
// count.
func TestEarlierHolderWritesInBetween(t *testing.T) {
	for _, exists := range []bool{false, true} {
		o := newObjectTest(t)
		first, earlier, later := o.holder(), o.holder(), o.holder()
		want := "bc"
		if exists {
			o.must(o.write(first, "a"))
			want = "abc"
		}
		o.beforeWrite(func() { o.must(o.write(earlier, "b")) })
		o.must(o.write(later, "c"))
		o.want(want)
		o.wantStale(o.write(earlier, "d"))
	}
}

// A later holder that writes what was there before is a later holder all the same.
func TestLaterHolderWritesTheSame(t *testing.T) {
	o := newObjectTest(t)
	first, earlier, later := o.holder(), o.holder(), o.holder()
	o.must(o.write(first, "a"))
	o.beforeWrite(func() { o.must(o.write(later, "")) })
	o.wantStale(o.write(earlier, "b"))
	o.want("a")
}

// An object that is deleted between the read and the write is made anew.
func TestObjectIsDeletedInBetween(t *testing.T) {
	o := newObjectTest(t)
	holder := o.holder()
	o.must(o.write(holder, "a"))
	o.beforeWrite(func() {
		o.bucket.mu.Lock()
		defer o.bucket.mu.Unlock()
		delete(o.bucket.objects, "/letters")
	})
	o.must(o.write(holder, "b"))
	o.want("b")
}

// beforeWrite runs f before the next write takes effect.
func (o *objectTest) beforeWrite(f func()) { o.bucket.beforeWrite.Store(&f) }
