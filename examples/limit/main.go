// Limit shows ten replicas that call an API which allows three calls at a time. Each call waits for a permit of a
// semaphore. One replica is killed during its calls.
//
//	go run ./examples/limit
//
// The API itself is the referee: it counts the calls in progress, and knows nothing of locks. The exit status is 0 if it
// never had more than three, if it had three, and if every replica was served.
//
//	-for          how long the replicas call
//	-unprotected  without the semaphore: the referee finds more than three, and the exit status is 1
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

const (
	replicas = 10
	allowed  = 3                     // calls at a time
	callTime = 20 * time.Millisecond // of a call to the API
	ttl      = 2 * time.Second       // how long the permit of the killed replica is missing
)

// Environment variables by which the demo tells a replica its part.
const (
	envReplica     = "LIMIT_REPLICA"
	envNodes       = "LIMIT_NODES"
	envAPI         = "LIMIT_API"
	envUnprotected = "LIMIT_UNPROTECTED"
)

func main() {
	name := os.Getenv(envReplica)
	if name != "" {
		stage.Play("replica "+name, func(dismissed <-chan struct{}) error { return replica(dismissed, name) })
		return
	}

	lasts := flag.Duration("for", 10*time.Second, "how long the replicas call")
	unprotected := flag.Bool("unprotected", false, "call without the semaphore")
	flag.Parse()
	stage.Run("limit", func(ctx context.Context) error { return run(ctx, *lasts, *unprotected) })
}

// run is the demo. Its error is the verdict.
func run(ctx context.Context, lasts time.Duration, unprotected bool) error {
	nodes, err := testutil.StartNodes(3)
	if err != nil {
		return err
	}
	defer nodes.Close()

	err = stage.Provision(ctx, nodes.URLs(), core.TTL(ttl), core.WithClockWindow(ttl/10))
	if err != nil {
		return err
	}

	api := newReferee()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener)
	defer server.Close()

	env := []string{envNodes + "=" + strings.Join(nodes.URLs(), ","), envAPI + "=http://" + listener.Addr().String()}
	if unprotected {
		env = append(env, envUnprotected+"=1")
	}
	fmt.Printf("three nodes: %s; %d replicas call an API that allows %d calls at a time\n", nodes.Kind, replicas, allowed)

	err = play(ctx, api, env, lasts)
	if err != nil {
		return err
	}
	fmt.Println(api.summary())
	return api.verdict()
}

// play starts the replicas, kills one of them, and stops the others.
func play(ctx context.Context, api *referee, env []string, lasts time.Duration) (err error) {
	var children []*stage.Child
	defer func() { err = errors.Join(err, stop(children)) }()
	for i := range replicas {
		child, err := stage.Start(readAll, append(env, fmt.Sprintf("%s=%d", envReplica, i))...)
		if err != nil {
			return err
		}
		children = append(children, child)
	}

	err = api.untilEachHasCalled(ctx)
	if err != nil {
		return err
	}
	err = stage.Sleep(ctx, lasts/4)
	if err != nil {
		return err
	}

	err = children[0].Kill()
	if err != nil {
		return err
	}
	children = children[1:]
	fmt.Println("replica 0 is killed; if it had a permit, that one is missing for", ttl)
	return stage.Sleep(ctx, lasts*3/4)
}

// stop makes the replicas end, and waits for them.
func stop(children []*stage.Child) error {
	for _, c := range children {
		c.Dismiss()
	}

	var errs []error
	for _, c := range children {
		errs = append(errs, c.Wait())
	}
	return errors.Join(errs...)
}
