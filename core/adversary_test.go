package core

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// These schedules have wrong clocks, servers that change places, different max TTLs and retentions, and guard records
// that were written by hand.

// Provision does not claim a node whose clock is behind, because its quarantine would be over once the clock is
// corrected.
func TestProvisionWhileTheClockIsBehind(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.stranger()
		lease := w.acquire(a.reaches(0, 1), "k")
		synctest.Wait()
		w.nodes[1].StepClock(-time.Minute) // boots with a wrong clock
		w.nodes[1].RestartEmpty()
		wantErr(t, b.Provision(t.Context()), ErrUnavailable)
		w.nodes[1].StepClock(time.Minute) // NTP
		other, _ := b.reaches(1, 2).TryAcquire(t.Context(), "k")
		wantNotBoth(t, lease, other)
	})
}

// Provision does not claim a node whose clock is ahead, because the node would not vote for as long as its clock is
// ahead.
func TestProvisionWhileTheClockIsAhead(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		b := w.stranger()
		b.links[2].Set(coretest.Fate{Refuse: true})
		w.nodes[0].StepClock(2 * time.Hour)
		b.Provision(t.Context())
		w.nodes[0].StepClock(-2 * time.Hour)
		time.Sleep(time.Hour)
		w.acquire(b, "k")
	})
}

// A repeated Complete promises the whole retention, even on nodes that took the record the first time.
func TestRetentionOfARepeatedCompletion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(Retention(time.Hour)), w.process()
		lease := w.acquire(a, "k")
		wantErr(t, a.completeOn(lease, "result", 0), ErrUnavailable)
		time.Sleep(50 * time.Minute)
		succeeds(t, a.completeOn(lease, "result", 0, 1))
		done := time.Now()
		time.Sleep(11 * time.Minute)
		b.links[1].Set(coretest.Fate{ReplyDelay: 100 * time.Millisecond}, wire.OpAcquire)
		if _, err := b.TryAcquire(t.Context(), "k"); err == nil {
			t.Fatalf("granted %v after Complete had returned nil, of a retention of %v", time.Since(done), a.p.retention)
		}
	})
}

// A node that has a lease by renewal alone counts as in use, for Provision, too.
func TestProvisionBesideARenewedLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.stranger()
		lease := w.acquire(a.reaches(0, 1), "k")
		a.mend()
		time.Sleep(4 * time.Second) // a renewal brings the lease to node 2
		if w.owner(a, 2, "k") != lease.name() {
			t.Fatal("the schedule is off: node 2 does not have the lease")
		}
		w.nodes[0].Flush()
		w.nodes[1].Flush()
		a.refused()
		b.Provision(t.Context()) // the result does not matter
		other, _ := b.reaches(0, 1).TryAcquire(t.Context(), "k")
		wantNotBoth(t, lease, other)
	})
}

// A late completion fails if the counters of later grants may be gone, however long the max TTL of its process is.
func TestLateCompletionWithTwoMaxTTLs(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		x, y := w.process(WithMaxTTL(24*time.Hour)), w.process()
		stale := w.acquire(x, "k")
		x.refused()
		time.Sleep(time.Minute)
		lease := w.acquire(y, "k")
		first := lease.FencingToken()
		w.release(lease)
		time.Sleep(4 * time.Hour)
		x.mend()
		time.Sleep(time.Minute)
		if err := stale.Complete(t.Context(), []byte("stale")); err == nil {
			t.Fatalf("completed with token %d, 4h after it was lost, though %d was granted since", stale.FencingToken(), first)
		}
	})
}

// A token may be ahead of the clock by a quarter of the longest max TTL, so its counter must be kept for as long.
func TestTokenGoesBack(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		off := WithClockWindow(0)
		x, y, z := w.process(off, WithMaxTTL(2*time.Hour)), w.process(off), w.process(off)
		w.release(w.acquire(x, "other"))
		w.release(w.acquire(y, "other")) // y learns of 2h
		for _, k := range y.links {
			k.Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
				if s == wire.OpAcquire {
					proposeLater(q, 30*time.Minute) // as if y's clock were ahead
				}
				return coretest.Fate{}
			})
		}
		first := w.acquire(y, "k")
		w.release(first)
		synctest.Wait()
		time.Sleep(20 * time.Minute)
		second := w.acquire(z, "k")
		wantLaterToken(t, second, first)
	})
}

// expiredCert fails every request. The error says that the server's certificate has expired or, while dead is set, that
// no server answers.
type expiredCert struct {
	coretest.Link
	dead atomic.Bool
}

func (h *expiredCert) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := coretest.ErrRefused
		if !h.dead.Load() {
			err = &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired,
				Detail: fmt.Sprintf("current time %s is after %s", time.Now().Format(time.RFC3339), "2026-01-01T00:00:00Z")}}
		}
		cmd.SetErr(err)
		return err
	}
}

// An expired certificate is logged only now and then, although the text of the error changes each time.
func TestExpiredCertificateLogs(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		clients := testutil.Clients(w.nodes)
		var cert expiredCert
		cert.dead.Store(true)
		clients[2].(*redis.Client).AddHook(&cert)
		var log logbook.Book
		l := must(New(clients, WithLogger(log.Logger())))
		defer l.Close(t.Context())
		cert.dead.Store(false)
		time.Sleep(time.Hour)
		if n := log.Count("node is unfit"); n > 5 {
			t.Fatalf("%d lines in an hour", n)
		}
	})
}

// Two servers that have swapped their addresses are not taken for one.
func TestSameServerThatMoved(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var moved atomic.Bool
		w.serving = func(i int) *testutil.Node {
			if moved.Load() && i < 2 {
				return w.nodes[1-i]
			}
			return w.nodes[i]
		}
		w.nodes[1].Down()
		w.nodes[0].Up()
		p := w.stranger()
		synctest.Wait()   // until nobody dials node 1 any more
		w.nodes[0].Down() // breaks connections
		moved.Store(true)
		w.nodes[1].Up()
		w.nodes[0].Up()
		time.Sleep(10 * time.Minute)
		p.TryAcquire(t.Context(), "k")
		time.Sleep(10 * time.Minute)
		w.release(w.acquire(p.reaches(0, 1), "both"))
	})
}

// A guard record that names a lease of more than a day does no harm. No process may use such a lease.
func TestHugeLongest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			memory, _, _ := strings.Cut(must(n.Exec("GET", p.e.Keys.Guard(0))).(string), " ")
			n.Exec("SET", p.e.Keys.Guard(0), memory+" 90000000")
		}
		w.acquire(p, "k")
	})
}

// A process that completes an unfinished record keeps it for as long as any node does.
func TestSettlingShortensTheRetention(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 5, func(t *testing.T, w *world) {
		a, b := w.process(Retention(time.Hour)), w.process()
		lease := w.acquire(a, "k")
		wantErr(t, a.completeOn(lease, "result", 0), ErrUnavailable)
		time.Sleep(50 * time.Minute)
		succeeds(t, a.completeOn(lease, "result", 2, 3, 4))
		done := time.Now()
		time.Sleep(30 * time.Second)
		_, err := b.reaches(0, 1, 2).Acquire(t.Context(), "k")
		wantErr(t, err, ErrDone)
		b.mend()
		time.Sleep(11 * time.Minute)
		if _, err = b.reaches(0, 1, 2).TryAcquire(t.Context(), "k"); err == nil {
			t.Fatalf("granted %v after Complete had returned nil, of a retention of %v", time.Since(done), a.p.retention)
		}
	})
}

// Close does not wait for Provision of all guard records of a slow Cluster.
func TestCloseDoesNotWaitForProvision(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := clusterOfOne(w.nodes[0])
		defer client.Close()
		l := must(New([]redis.UniversalClient{client}, WithRestartGuard(true), untouched, quietly))
		w.nodes[0].SlowReplies(900 * time.Millisecond)
		go l.Provision(context.Background())
		time.Sleep(time.Second)
		start := time.Now()
		l.Close(over())
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("Close took %v after its context had ended", d)
		}
	})
}

// A cooldown does not last for hours if the nodes' clocks are ahead when the holder releases.
func TestCooldownAndAClockJump(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		lease := w.acquire(a, "k")
		synctest.Wait()
		for _, n := range w.nodes {
			n.StepClock(2 * time.Hour)
		}
		// By the nodes' clocks, the lease is over.
		wantErr(t, lease.Release(t.Context(), Cooldown(5*time.Second)), ErrUnavailable)
		synctest.Wait()
		for _, n := range w.nodes {
			n.StepClock(-2 * time.Hour)
		}
		time.Sleep(time.Minute)
		w.release(w.acquire(b, "k"))
	})
}

// proposeLater adds a time to the token that an acquisition proposes.
func proposeLater(q coretest.Sent, by time.Duration) {
	number := func(t time.Time) []byte {
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(t.UnixMicro())))
	}
	last := len(q.Args) - 1
	body, _ := q.Args[last].(encoding.BinaryMarshaler).MarshalBinary()
	q.Args[last] = bytes.ReplaceAll(body, number(q.Proposes), number(q.Proposes.Add(by)))
}
