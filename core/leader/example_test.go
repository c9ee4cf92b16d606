package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// One process of the service at a time does the work. The others stand by.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
	if err != nil {
		log.Fatal(err)
	}
	e, err := leader.New(locker, "billing", // the group: its processes share a leader
		leader.OnElected(func(ctx context.Context, t leader.Term) {
			serve(ctx, t.FencingToken) // ctx ends when this process must stop leading
		}))
	if err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
	if err := errors.Join(e.Close(context.Background()), locker.Close(context.Background())); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, token uint64) {
	fmt.Println("leading with token", token)
	<-ctx.Done()
}

// A leader works in pieces. If it resigns, it finishes the piece that it has begun.
func ExampleElector_Enter() {
	var e *leader.Elector // made by leader.New
	for range time.Tick(time.Minute) {
		work, leave, err := e.Enter(context.Background())
		if err != nil {
			continue // another process leads
		}
		if err := sweep(work); err != nil { // work ends if the term is lost
			log.Print(err)
		}
		leave()
	}
}

var _ gocron.Elector = (*leader.Elector)(nil)

// An Elector can be passed to gocron. Only the scheduler of the leader runs its jobs.
func ExampleElector_IsLeader() {
	var locker *core.Locker // made by core.Open
	e, err := leader.New(locker, "billing")
	if err != nil {
		return
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
	if err != nil {
		return
	}
	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func(ctx context.Context) error {
		work, leave, err := e.Enter(ctx) // work ends with the term; after Resign, the term waits for leave
		if err != nil {
			return err
		}
		defer leave()
		return sweep(work)
	}))
	if err != nil {
		return
	}
	scheduler.Start()
}

func sweep(context.Context) error { return nil }

// These pages show which process leads and whether this process is healthy, and hand the leadership over.
func ExampleElector_Leader() {
	var e *leader.Elector // made by leader.New
	http.HandleFunc("GET /leader", func(w http.ResponseWriter, r *http.Request) {
		h, err := e.Leader(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%s leads since %v, term %d\n", h.Candidate, h.Since, h.Term)
	})
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := e.Check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("POST /resign", func(http.ResponseWriter, *http.Request) { e.Resign() })
}
