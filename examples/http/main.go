// Http shows what becomes of updates that several replicas of a server make to the same orders at once:
// without a lock, some are lost; with httplock, none is. Then it shows what a client is told whose request lost its lock.
//
//	go run ./examples/http
//
// The replicas are processes of their own. The lock nodes are redis-server processes where that is on PATH
// and embedded nodes otherwise. The exit status is 0 if updates were lost without the middleware, and none
// with it, and if a lost lock made no clean answer, also behind a middleware that compresses answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

func main() {
	if os.Getenv(nodesEnv) != "" {
		stage.Play("http", replica)
		return
	}
	stage.Run("http", demo)
}

func demo(ctx context.Context) error {
	nodes, err := testutil.StartNodes(3)
	if err != nil {
		return err
	}
	defer nodes.Close()
	store := startStore()
	defer store.close()
	replicas, err := startReplicas(3, nodes.URLs(), store.url())
	if err != nil {
		return err
	}
	defer replicas.stop()

	fmt.Printf("three replicas; three lock nodes (%s); %d clients send %d requests each, half of them for one order\n\n",
		nodes.Kind, clients, requests)
	without, err := load(ctx, store, replicas.urls, "/unlocked")
	if err != nil {
		return err
	}
	with, err := load(ctx, store, replicas.urls, "/orders")
	if err != nil {
		return err
	}
	print(without, with)
	switch {
	case with.lost() != 0:
		return fmt.Errorf("%d updates were lost with the middleware", with.lost())
	case with.ok() == 0:
		return errors.New("nothing was updated with the middleware")
	case without.lost() == 0:
		return errors.New("no update was lost without the middleware: there was nothing to see")
	}
	return loss(ctx)
}
