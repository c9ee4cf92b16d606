package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// Before a rollout, print the findings about all nodes.
func ExampleDiagnose() {
	ctx := context.Background()
	nodes := []*testutil.Node{testutil.StartNode(), testutil.StartNode(), testutil.StartNode()}
	for _, n := range nodes {
		defer n.Close()
	}
	locker, err := core.New(testutil.Clients(nodes))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	if err := admin.Provision(ctx, locker); err != nil {
		log.Fatal(err)
	}

	nodes[2].SetEvictionPolicy("allkeys-lru", 1<<30)
	found, err := admin.Diagnose(ctx, testutil.Clients(nodes))
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range found.Nodes {
		for _, f := range n.Findings {
			fmt.Printf("%s: node %d %s: %s\n", f.Severity, n.Node, f.What, f.Fix)
		}
	}
	// Output:
	// fault: node 2 maxmemory-policy is allkeys-lru, under which Redis may evict a held lock: set it to noeviction
}
