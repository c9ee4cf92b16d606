package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/coretest"
)

// aloneNode returns a node whose client is not used.
func aloneNode(t *testing.T) *Node {
	c := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { c.Close() })
	return newNode(0, c)
}

// A node in trouble gets only one probe per timeout, and the requests that must be sent.
func TestCircuit(t *testing.T) {
	const timeout = time.Second
	broken := errors.New("connection reset")
	type step struct {
		at   time.Duration
		end  error // of a request in flight; errNone: none ends
		want error // of a new request
	}
	errNone := errors.New("")
	for name, steps := range map[string][]step{
		"healthy":                        {{0, errNone, nil}, {0, nil, nil}, {9 * timeout, nil, nil}},
		"fails a little":                 {{0, errNone, nil}, {1, broken, nil}, {2, broken, nil}, {3, nil, nil}},
		"fails in a row":                 {{0, errNone, nil}, {1, broken, nil}, {2, broken, nil}, {3, broken, nil}, {4, errNone, ErrNotAsked}, {5, broken, ErrNotAsked}, {3 + timeout, errNone, nil}, {4 + timeout, errNone, ErrNotAsked}, {5 + timeout, nil, nil}, {6 + timeout, errNone, nil}},
		"does not answer":                {{0, errNone, nil}, {timeout, errNone, nil}, {timeout + 1, errNone, nil}, {timeout + 2, errNone, ErrNotAsked}, {2*timeout + 1, errNone, nil}, {2*timeout + 2, nil, nil}},
		"an error of Redis is an answer": {{0, errNone, nil}, {1, redisError{}, nil}, {2, redisError{}, nil}, {3, redisError{}, nil}, {4, redisError{}, nil}, {5, errNone, nil}},
	} {
		n := aloneNode(t)
		for i, s := range steps {
			if s.end != errNone {
				n.end(n.breakers[nil], clock.Instant(s.at), s.end)
			}
			if _, err := n.begin(clock.Instant(s.at), timeout, false, ""); !errors.Is(err, s.want) {
				t.Fatalf("%s, step %d at %v: %v, want %v", name, i, s.at, err, s.want)
			}
			b, err := n.begin(clock.Instant(s.at), timeout, true, "")
			if err != nil {
				t.Fatalf("%s, step %d: what must be sent: %v", name, i, err)
			}
			n.adjustInFlight(b, -1)
		}
	}
}

// Failures of long ago do not count, so requests that begin at the same moment all pass. One more failure counts again.
func TestFailuresFade(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		at   clock.Instant
		want error // of the second request
	}{
		{clock.Instant(failuresFade - 1), ErrNotAsked},
		{clock.Instant(failuresFade), nil},
	} {
		n := aloneNode(t)
		for range MaxFailures {
			b, _ := n.begin(0, timeout, false, "")
			n.end(b, 0, coretest.ErrRefused)
		}

		first, err := n.begin(c.at, timeout, false, "")
		if err != nil {
			t.Fatalf("at %v: %v", c.at, err)
		}
		_, err = n.begin(c.at, timeout, false, "")
		if !errors.Is(err, c.want) {
			t.Errorf("the second request at %v: %v, want %v", c.at, err, c.want)
		}

		n.end(first, c.at, coretest.ErrRefused)
		_, _ = n.begin(c.at, timeout, false, "") // a probe
		if _, err := n.begin(c.at, timeout, false, ""); !errors.Is(err, ErrNotAsked) {
			t.Errorf("after one more failure at %v: %v", c.at, err)
		}
	}
}

// A lost request makes a node look hung only until the node answers another request.
func TestCircuitForgetsALostRequest(t *testing.T) {
	n := aloneNode(t)
	n.begin(0, time.Second, false, "") // lost
	n.begin(1, time.Second, false, "")
	n.end(n.breakers[nil], 0, nil)
	for i := range 3 {
		if _, err := n.begin(clock.Instant(9*time.Second), time.Second, false, ""); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

type redisError struct{}

func (redisError) Error() string { return "ERR" }
func (redisError) RedisError()   {}

// The timeout of a dial explains a failure, but does not count as the caller's deadline.
func TestCauseIsNotTheCallersDeadline(t *testing.T) {
	t.Parallel()
	n := aloneNode(t)
	fails := func(err error) {
		b, _ := n.begin(0, time.Second, true, "")
		n.end(b, 0, err)
	}
	fails(context.DeadlineExceeded)
	if err := n.noAnswerError(""); errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("error is %v", err)
	}
	fails(coretest.ErrRefused)
	fails(context.DeadlineExceeded)
	if err := n.noAnswerError(""); !errors.Is(err, coretest.ErrRefused) {
		t.Errorf("error is %v", err)
	}
	fails(nil)
	if err := n.noAnswerError(""); err != ErrNoAnswer {
		t.Errorf("after an answer: %v", err)
	}
}
