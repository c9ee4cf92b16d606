package named_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/testutil"
)

// A host library asks for a lock that has a name only.
func ExampleLocks_Lock() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()}, core.Name("certificates"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	locks, err := named.New(locker)
	if err != nil {
		log.Fatal(err)
	}

	waitCtx, cancel := context.WithTimeout(ctx, 10*time.Second) // bounds the wait alone
	defer cancel()
	err = locks.Lock(waitCtx, "issue_cert_example.com")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("issuing")

	err = locks.Unlock(ctx, "issue_cert_example.com")
	if errors.Is(err, core.ErrLost) {
		log.Print("another process may have issued it, too")
	}
	// Output: issuing
}
