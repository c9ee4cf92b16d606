// Fencedsql shows why a handler hands its fencing token to the database: a handler that does not notice that
// its time is over writes late, and is refused.
//
//	make demo-fencedsql
//
// Two tasks add to one account. The handler of the first one hangs, past its deadline and past the grace
// for which it keeps its lease; so the second one runs, and writes. Then the first one wakes up, with a balance
// that it read before. The exit status is 0 if nothing that was written is lost, and the second one, which
// writes twice, is not refused.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9/logging"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
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
	bank := &bank{db: db, hung: make(chan struct{}), wake: make(chan struct{}), finished: make(chan error, 2)}

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
	_, err = db.Exec(`CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, deposits INTEGER, fence INTEGER);
		INSERT INTO account VALUES (7, 100, 0, 0)`)
	return db, err
}

// A bank is the handler and what it works on.
type bank struct {
	db       *sql.DB
	hung     chan struct{} // the first handler has read
	wake     chan struct{} // it may go on
	finished chan error
}

type deposit struct {
	Account int  `json:"account"`
	Amount  int  `json:"amount"`
	Hang    bool `json:"hang"`
}

var errStale = errors.New("refused: somebody with a greater fencing token has written")

// deposit reads, thinks and writes: three steps, between which anything can happen.
func (b *bank) deposit(ctx context.Context, t *asynq.Task) (err error) {
	defer func() { b.finished <- err }()
	var d deposit
	if err := json.Unmarshal(t.Payload(), &d); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	var balance int
	if err := b.db.QueryRow(`SELECT balance FROM account WHERE id = ?`, d.Account).Scan(&balance); err != nil {
		return err
	}
	if d.Hang {
		close(b.hung)
		<-b.wake // does not look at ctx, which has ended long ago
	}
	run, _ := queuelock.FromContext(ctx)
	if err := b.write(d.Account, run.FencingToken, `balance = ?`, balance+d.Amount); err != nil {
		return err
	}
	return b.write(d.Account, run.FencingToken, `deposits = deposits + 1`)
}

// write changes an account, unless a later holder has. It compares with <=: the row has the holder's own token
// after its first write, and < would refuse its second one.
func (b *bank) write(account int, token uint64, set string, args ...any) error {
	fence := int64(token)
	res, err := b.db.Exec(`UPDATE account SET `+set+`, fence = ? WHERE id = ? AND fence <= ?`, append(args, fence, account, fence)...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
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
	if err := b.outcome(ctx, "the deposit of 10, late", errStale); err != nil {
		return err
	}
	var balance, deposits int
	if err := b.db.QueryRow(`SELECT balance, deposits FROM account WHERE id = 7`).Scan(&balance, &deposits); err != nil {
		return err
	}
	fmt.Printf("balance %d after %d deposit\n", balance, deposits)
	if balance != 105 || deposits != 1 {
		return fmt.Errorf("the balance is %d after %d deposits, want 105 after 1", balance, deposits)
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
