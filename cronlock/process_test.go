//go:build unix

package cronlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// What only processes can show: one that is killed, and one that stands still, in the middle of a run.

// childEnv makes the test binary a replica: the nodes' URLs, separated by commas.
const childEnv = "CRONLOCK_TEST_REPLICA"

func TestMain(m *testing.M) {
	if urls := os.Getenv(childEnv); urls != "" {
		if err := child(strings.Split(urls, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// An event is what a replica tells of a run, as a line of JSON.
type event struct {
	What    string // started, told
	Tick    time.Time
	Attempt int
	Token   uint64
	Lost    bool // told: the context ended with core.ErrLost
	from    *process
}

// openBrief has leases that are soon over.
func openBrief(urls []string) (*core.Locker, error) {
	return core.Open(urls, core.TTL(3*time.Second), core.WithClockWindow(200*time.Millisecond), core.WithLogger(quiet))
}

// child is a replica whose job goes on until its context ends, or for so long that another replica has taken over: a run that
// never ended would keep a tick that is to run again from doing so.
func child(urls []string) error {
	locks, err := openBrief(urls)
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler()
	if err != nil {
		return err
	}
	c, err := New(locks, s, "service", AtLeastOnce(2))
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	_, err = c.Add("job", gocron.CronJob("*/10 * * * * *", true), func(ctx context.Context) error {
		run, _ := FromContext(ctx)
		e := event{What: "started", Tick: run.Tick, Attempt: run.Attempt, Token: run.FencingToken}
		if err := out.Encode(e); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(15 * time.Second):
		}
		if ctx.Err() == nil {
			return nil
		}
		_, cause := ended(ctx)
		e.What, e.Lost = "told", errors.Is(cause, core.ErrLost)
		return out.Encode(e)
	})
	if err != nil {
		return err
	}
	s.Start()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until it is killed, or its parent is gone
		return err
	}
	return errors.Join(s.Shutdown(), c.Close(context.Background()), locks.Close(context.Background()))
}

type process struct {
	*exec.Cmd
	t *testing.T
}

// spawn starts a replica that tells events.
func spawn(t *testing.T, urls []string, events chan<- event) *process {
	t.Helper()
	p := &process{exec.Command(os.Args[0]), t}
	p.Env = append(os.Environ(), childEnv+"="+strings.Join(urls, ","))
	p.Stderr = os.Stderr
	if _, err := p.StdinPipe(); err != nil { // which stays open
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for in := json.NewDecoder(out); ; {
			e := event{from: p}
			if in.Decode(&e) != nil {
				return // it is dead
			}
			events <- e
		}
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-read
		p.Wait()
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// A replica that is killed, or stands still until its lease is over: the tick runs again on the other one, as the
// second attempt. The one that stood still is told when it goes on.
func TestProcess(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		rerunAfter(t, syscall.SIGKILL)
	})
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		first, events := rerunAfter(t, syscall.SIGSTOP)
		first.from.signal(syscall.SIGCONT)
		e := next(t, events, "told")
		for e.from != first.from { // on a machine that is busy the other may lose a lease, too
			e = next(t, events, "told")
		}
		if !e.Lost || !e.Tick.Equal(first.Tick) {
			t.Errorf("the one that stood still was told %+v", e)
		}
	})
}

// rerunAfter stops the one of two replicas that starts a tick first, and checks that the other one runs the tick again. It
// returns the first start, and what the replicas tell after the second.
func rerunAfter(t *testing.T, stop syscall.Signal) (first event, events <-chan event) {
	t.Helper()
	urls := voters(t)
	told := make(chan event, 1000)
	spawn(t, urls, told)
	spawn(t, urls, told)
	first = next(t, told, "started")
	first.from.signal(stop)
	second := next(t, told, "started")
	for !second.Tick.Equal(first.Tick) { // one that nobody could start before
		second = next(t, told, "started")
	}
	if second.from == first.from {
		t.Fatal("a stopped process tells something")
	}
	if second.Attempt != 2 || second.Token <= first.Token {
		t.Errorf("after attempt %d at %v with token %d came attempt %d at %v with token %d",
			first.Attempt, first.Tick, first.Token, second.Attempt, second.Tick, second.Token)
	}
	return first, told
}

// voters starts three servers, provisioned so that the first tick finds nodes that vote.
func voters(t *testing.T) (urls []string) {
	t.Helper()
	for _, s := range testutil.NewServers(t, 3) {
		urls = append(urls, "redis://"+s.Addr())
	}
	locks, err := openBrief(urls)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	if err := locks.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return urls
}

// next waits for the next event of a kind.
func next(t *testing.T, events <-chan event, what string) event {
	t.Helper()
	for patience := time.After(90 * time.Second); ; {
		select {
		case e := <-events:
			if e.What == what {
				return e
			}
		case <-patience:
			t.Fatalf("%s: nothing is told any more", what)
		}
	}
}
