package cronlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil"
)

// nodes returns a Locker on an embedded node, which takes the place of Redis.
func nodes() (locker *core.Locker, end func()) {
	node := testutil.StartNode()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() {
		locker.Close(context.Background())
		node.Close()
	}
}

// replica starts a replica of a service.
func replica() (service *cronlock.Service, end func()) {
	locker, stop := nodes()
	service, err := cronlock.New(locker, "billing")
	if err != nil {
		log.Fatal(err)
	}
	return service, func() {
		service.Close(context.Background())
		stop()
	}
}

// If the replica of a tick dies, another replica starts the tick again. A tick has at most three starts.
func ExampleAtLeastOnce() {
	service, end := replica()
	defer end()
	ran := make(chan int, 1)
	_, err := service.Add("invoices", cronlock.At(time.Now()), func(ctx context.Context) error {
		run, _ := cronlock.FromContext(ctx)
		ran <- run.Attempt // above 1 if the tick was started before
		return nil
	}, cronlock.AtLeastOnce(3))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("attempt", <-ran)
	// Output: attempt 1
}

// After an outage or a deploy, a tick may start up to 15 minutes late.
func ExampleWithGrace() {
	service, end := replica()
	defer end()
	tick := time.Now().Add(-10 * time.Minute) // no replica was running then
	ran := make(chan time.Time, 1)
	_, err := service.Add("invoices", cronlock.At(tick), func(ctx context.Context) error {
		run, _ := cronlock.FromContext(ctx)
		ran <- run.Tick
		return nil
	}, cronlock.WithGrace(15*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-ran).Equal(tick))
	// Output: true
}

// A cron library calls the job at the ticks. If a tick is late, the engine asks for another call.
func ExampleWithHost() {
	service, end := replica()
	defer end()
	var job *cronlock.Job
	added, ran := make(chan struct{}), make(chan struct{}, 1)
	job, err := service.Add("invoices", cronlock.At(time.Now()), func(context.Context) error {
		ran <- struct{}{}
		return nil
	}, cronlock.WithHost(func() {
		<-added
		_ = job.RunDue(context.Background()) // as the library does at each tick; log the error unless IsExpected
	}))
	if err != nil {
		log.Fatal(err)
	}
	close(added)
	<-ran
	fmt.Println("ran")
	// Output: ran
}

// Only the leader of the group starts ticks.
func ExampleWithElector() {
	ctx := context.Background()
	locker, end := nodes()
	defer end()
	elector, err := leader.New(locker, "billing", leader.WithCandidate("billing-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer elector.Close(ctx)
	service, err := cronlock.New(locker, "billing", cronlock.WithElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)

	ran := make(chan struct{}, 1)
	_, err = service.Add("invoices", cronlock.At(time.Now()), func(context.Context) error {
		ran <- struct{}{}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	<-ran
	now, err := elector.Leader(ctx)
	fmt.Println(now.Candidate, err)
	// Output: billing-1 <nil>
}
