package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
)

var pay = func(context.Context, int) error { return nil }

// At most three replicas pay at a time.
func ExampleNew() {
	ctx := context.Background()
	locker, stop := open()
	defer stop()

	limit, err := semaphore.New(locker, 3)
	if err != nil {
		log.Fatal(err)
	}
	err = limit.Do(ctx, "payments-api", func(ctx context.Context) error {
		return pay(ctx, 42) // ctx ends if the permit is lost
	})
	fmt.Println(err)
	// Output: <nil>
}

// Three calls at a time to an API, over all replicas.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	locker, stop := open()
	defer stop()

	limit, err := semaphore.New(locker, 3)
	if err != nil {
		log.Fatal(err)
	}
	err = limit.Do(ctx, "payments-api", func(ctx context.Context) error {
		fmt.Println("called") // pass ctx on: it ends if the permit is lost
		return nil
	}, core.MaxWait(5*time.Second))
	if errors.Is(err, core.ErrHeld) {
		fmt.Println("three others are calling: try again later")
	}
	// Output: called
}

// Without a free permit, TryAcquire returns ErrHeld.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	locker, stop := open()
	defer stop()

	limit, err := semaphore.New(locker, 2)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		permit, err := limit.TryAcquire(ctx, "imports")
		if errors.Is(err, core.ErrHeld) {
			fmt.Println("two imports are running")
			continue
		}
		defer permit.Release(ctx)
		fmt.Println("permitted")
	}
	// Output:
	// permitted
	// permitted
	// two imports are running
}

// A store that rejects late writes keeps the largest token of each slot.
func ExampleFromContext() {
	ctx := context.Background()
	locker, stop := open()
	defer stop()
	fences := map[int]uint64{} // of a store: UPDATE … SET token = $token WHERE slot = $slot AND token <= $token

	limit, err := semaphore.New(locker, 2)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		err = limit.Do(ctx, "export", func(ctx context.Context) error {
			permit, _ := semaphore.FromContext(ctx)
			if permit.FencingToken() < fences[permit.Slot()] {
				return errors.New("a later holder of the slot has written")
			}
			fences[permit.Slot()] = permit.FencingToken()
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}

// With a cooldown, a semaphore limits how often something begins: two in a minute.
func ExamplePermit_Release() {
	ctx := context.Background()
	locker, stop := open()
	defer stop()

	limit, err := semaphore.New(locker, 2)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		permit, err := limit.TryAcquire(ctx, "mails")
		if errors.Is(err, core.ErrHeld) {
			fmt.Println("not in this minute")
			continue
		}
		fmt.Println("sent", permit.Release(ctx, core.Cooldown(time.Minute)))
	}
	// Output:
	// sent <nil>
	// sent <nil>
	// not in this minute
}

// open returns a Locker on an embedded node, and a function that closes it.
func open() (locker *core.Locker, stop func()) {
	node := testutil.StartNode()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() {
		_ = locker.Close(context.Background())
		node.Close()
	}
}
