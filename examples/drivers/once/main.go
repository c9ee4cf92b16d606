// Once kills the processes of examples/minimal/once at random instants, while requests, tasks and ticks ask them for
// payments, and then counts the payments in the database.
//
//	make fence                                          # 100 kills on SQLite, and 100 on PostgreSQL
//	cd examples/drivers && go run ./once                # five kills, on SQLite
//	cd examples/drivers && go run ./once -break         # books payments without fence.Store.Do, and finds it out
//
// It starts Redis servers for locks and for asynq, and two processes. A killed one is replaced at once. The exit status
// is 0 if each payment that a client has asked for was booked exactly once, the payment of each tick at most once, and
// if each receipt in an answer or in a log is the receipt in the database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

var errOutOfTime = errors.New("out of time")

// A plan has the values of the flags.
type plan struct {
	on     string // a database
	kills  int
	seed   uint64
	breaks bool
	limit  time.Duration
}

func main() {
	var p plan
	flag.StringVar(&p.on, "on", "sqlite", "the database: sqlite or postgresql")
	flag.IntVar(&p.kills, "kills", 5, "how often to kill")
	flag.Uint64Var(&p.seed, "seed", 0, "of the instants; 0: others each time")
	flag.BoolVar(&p.breaks, "break", false, "book payments without fence.Store.Do, which the program must find out")
	flag.DurationVar(&p.limit, "limit", 30*time.Minute, "how long it may take")
	flag.Parse()
	stage.Run("once", func(ctx context.Context) error { return run(ctx, p) })
}

// run plays the plan, and returns an error if a payment was not booked exactly once.
func run(ctx context.Context, p plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, errOutOfTime)
	defer cancel()
	if p.seed == 0 {
		p.seed = rand.Uint64()
	}
	fmt.Printf("%d kills on %s; to repeat: -on %s -kills %d -seed %d\n", p.kills, p.on, p.on, p.kills, p.seed)

	s, err := newShop(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()

	err = s.play(ctx, p)
	if err != nil {
		return fmt.Errorf("seed %d: %w", p.seed, err)
	}

	payments, err := s.database.payments(ctx)
	if err != nil {
		return err
	}
	books := s.ledger.copy()
	fmt.Println(books.summary(payments))
	return books.verdict(payments)
}
