// Fencedsql shows what package core/fence does: a handler that does not notice that its time is over writes late, and is
// refused by the database; then its task is run again, and books once.
//
//	make demo-fencedsql
//
// Two tasks add to one account. The handler of the first one hangs, past its deadline and past the grace for which it
// keeps its lease. So the second one runs, and books. Then the first one wakes up, and its fencing token is refused. Its
// task is delivered again, without counting a retry. The exit status is 0 if each deposit was booked exactly once.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9/logging"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
)

func main() {
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // queuelock would say that the lease of a handler that hangs is let go
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fencedsql:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := openAccounts()
	if err != nil {
		return err
	}
	defer db.Close()
	bank := &bank{db: db, store: fence.New(fence.SQLite), hung: make(chan struct{}), wake: make(chan struct{}), finished: make(chan error, 10)}

	var nodes []*testutil.Node // stand-ins for Redis servers: three for locks, one for asynq
	for range 4 {
		node := testutil.StartNode()
		defer node.Close()
		nodes = append(nodes, node)
	}
	locks, err := core.New(testutil.Clients(nodes[:3]), core.TTL(time.Second), core.WithClockWindow(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	if err := newnodes.Declare(ctx, locks); err != nil { // once, because these nodes are new
		return err
	}
	server, err := startServer(locks, nodes[3], bank)
	if err != nil {
		return err
	}
	defer server.Shutdown()
	return bank.play(ctx, asynq.NewClientFromRedisClient(nodes[3].Client()))
}

func startServer(locks *core.Locker, queue *testutil.Node, bank *bank) (*asynq.Server, error) {
	ql, err := queuelock.New(locks,
		queuelock.WithKey(queuelock.ByPayloadField("account")), // one at a time per account
		queuelock.WithGrace(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	cfg := asynq.Config{Concurrency: 4, TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond, LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil {
		return nil, err
	}
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc("deposit", bank.deposit)
	server := asynq.NewServerFromRedisClient(queue.Client(), cfg)
	return server, server.Start(mux)
}

func openAccounts() (*sql.DB, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(fence.New(fence.SQLite).Schema() + `
		CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, deposits INTEGER);
		INSERT INTO account VALUES (7, 100, 0)`)
	return db, err
}

// A bank is the handler and what it works on.
type bank struct {
	db       *sql.DB
	store    *fence.Store
	hanging  sync.Once
	hung     chan struct{} // the first handler hangs
	wake     chan struct{} // it may go on
	finished chan error
}

type deposit struct {
	Account int  `json:"account"`
	Amount  int  `json:"amount"`
	Hang    bool `json:"hang"`
}

// deposit books a deposit. The first handler of one that hangs does so before.
func (b *bank) deposit(ctx context.Context, t *asynq.Task) (err error) {
	defer func() { b.finished <- err }()
	var d deposit
	if err := json.Unmarshal(t.Payload(), &d); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if d.Hang {
		b.hanging.Do(func() {
			close(b.hung)
			<-b.wake
		})
	}

	// This handler does not look whether its context has ended, as it has for the one that hung.
	ctx = context.WithoutCancel(ctx)
	_, err = b.store.Do(ctx, b.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + ?, deposits = deposits + 1 WHERE id = ?`, d.Amount, d.Account)
		return nil, err
	})
	return err
}

// play is the plot.
func (b *bank) play(ctx context.Context, client *asynq.Client) error {
	fmt.Println("balance 100; one deposit of 10, whose handler hangs, and one of 5")
	if err := enqueue(ctx, client, deposit{7, 10, true}, asynq.Timeout(time.Second)); err != nil {
		return err
	}
	<-b.hung
	if err := enqueue(ctx, client, deposit{7, 5, false}); err != nil {
		return err
	}
	if err := b.outcome(ctx, "the deposit of 5", nil); err != nil {
		return err
	}
	close(b.wake)
	if err := b.outcome(ctx, "the deposit of 10, late", fence.ErrStale); err != nil {
		return err
	}
	if err := b.outcome(ctx, "the deposit of 10, delivered again", nil); err != nil {
		return err
	}
	var balance, deposits int
	if err := b.db.QueryRow(`SELECT balance, deposits FROM account WHERE id = 7`).Scan(&balance, &deposits); err != nil {
		return err
	}
	fmt.Printf("balance %d after %d deposits\n", balance, deposits)
	if balance != 115 || deposits != 2 {
		return fmt.Errorf("the balance is %d after %d deposits, want 115 after 2", balance, deposits)
	}
	return nil
}

func (b *bank) outcome(ctx context.Context, what string, want error) error {
	select {
	case err := <-b.finished:
		if err == nil {
			fmt.Printf("%s: written\n", what)
		} else {
			fmt.Printf("%s: %v\n", what, err)
		}
		if !errors.Is(err, want) {
			return fmt.Errorf("%s: got %v, want %v", what, err, want)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

func enqueue(ctx context.Context, client *asynq.Client, d deposit, opts ...asynq.Option) error {
	payload, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = client.EnqueueContext(ctx, asynq.NewTask("deposit", payload), opts...)
	return err
}
