package testutil_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// A Link cuts one of two clients off from a node. The node serves the other client.
func ExampleLink() {
	node := testutil.StartNode()
	defer node.Close()
	a, b := node.ClientWith(heeding), node.ClientWith(heeding)
	var link testutil.Link
	a.AddHook(&link)

	ping := func(c *redis.Client) bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return c.Set(ctx, "k", "v", 0).Err() == nil
	}
	link.Cut()
	fmt.Println("cut:", ping(a), ping(b))
	link.Restore()
	fmt.Println("mended:", ping(a), ping(b))
	link.Lose(1)
	fmt.Println("a reply lost:", ping(a), ping(a))
	link.Kill()
	fmt.Println("killed:", ping(a), ping(b))
	// Output:
	// cut: false true
	// mended: true true
	// a reply lost: false true
	// killed: false true
}

func heeding(o *redis.Options) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true }
