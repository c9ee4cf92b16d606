package river

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
	"github.com/lockkit/lockkit/internal/dbserver"
	"github.com/lockkit/lockkit/testutil"
)

// The environment of a process.
const (
	databaseURL = "HOST_DATABASE"
	lockless    = "HOST_LOCKLESS"
	rescues     = "HOST_RESCUES" // it also takes part in River's election, whose winner rescues jobs
)

// What a process says, followed by the note of the job.
const (
	began = "began: "
	done  = "done: "
	lost  = "lost: "
)

func TestMain(m *testing.M) { replica.Main(m, work) }

// An invoice is a job. Those of a customer must not run beside each other.
type invoice struct {
	Customer string `json:"customer"`
	Note     string `json:"note"` // which one it is
}

func (invoice) Kind() string { return "invoice" }

// byCustomer returns the key of an invoice, and "" for other jobs.
func byCustomer(job *rivertype.JobRow) string {
	var args invoice
	if job.Kind != args.Kind() || json.Unmarshal(job.EncodedArgs, &args) != nil {
		return ""
	}
	return core.Key("customer", args.Customer)
}

// work is a process with a client of River. Its jobs end when the test tells it, or with their context.
func work(self *replica.Self) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(databaseURL))
	if err != nil {
		return err
	}
	told := make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[invoice]) error {
		self.Say(began + job.Args.Note)
		select {
		case <-told:
			self.Say(done + job.Args.Note)
			return nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), core.ErrLost) {
				self.Say(lost + job.Args.Note)
			}
			return context.Cause(ctx)
		}
	}))

	config := &river.Config{
		Queues:                 map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:                workers,
		JobTimeout:             time.Hour,
		LeaderElectionDisabled: os.Getenv(rescues) == "",
		Middleware:             []rivertype.Middleware{onePerKey(self.Locker, byCustomer)},
	}
	if os.Getenv(lockless) != "" {
		config.Middleware = nil
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	err = client.Start(ctx)
	if err != nil {
		return err
	}

	self.Hear()
	close(told)
	self.Hear()
	return nil
}

// startPostgreSQL starts a PostgreSQL, and returns the URL of its database.
func startPostgreSQL(t *testing.T) (url string) {
	t.Helper()
	ping := func(addr string) error {
		url = "postgres://postgres@" + addr + "/postgres?sslmode=disable"
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	server, err := dbserver.StartPostgreSQL(ping, "fsync=off")
	if errors.Is(err, dbserver.ErrMissing) && os.Getenv("LOCKKIT_POSTGRES") != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return url
}

// A queue is a database of River, and the nodes for locks.
type queue struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // only inserts
	nodes  *replica.Nodes
}

func newQueue(t *testing.T, ttl time.Duration) *queue {
	t.Helper()
	q := &queue{t: t, url: startPostgreSQL(t), nodes: replica.StartNodes(t, ttl)}
	var err error
	q.pool, err = pgxpool.New(t.Context(), q.url)
	q.must(err)
	t.Cleanup(q.pool.Close)

	driver := riverpgxv5.New(q.pool)
	migrator, err := rivermigrate.New(driver, nil)
	q.must(err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	q.must(err)
	q.client, err = river.NewClient(driver, &river.Config{})
	q.must(err)
	return q
}

func (q *queue) must(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatal(err)
	}
}

// start starts a process with a client.
func (q *queue) start(name string, env ...string) *replica.Replica {
	q.t.Helper()
	return q.nodes.Start(name, append(env, databaseURL+"="+q.url)...)
}

// insert inserts a job, and returns its id.
func (q *queue) insert(customer, note string, opts *river.InsertOpts) (id int64) {
	q.t.Helper()
	result, err := q.client.Insert(q.t.Context(), invoice{customer, note}, opts)
	q.must(err)
	return result.Job.ID
}

// await waits until the row of a job is as wanted, and returns it.
func (q *queue) await(id int64, what string, wanted func(job *rivertype.JobRow) bool) (job *rivertype.JobRow) {
	q.t.Helper()
	testutil.Await(q.t, fmt.Sprintf("job %d is %s", id, what), func() bool {
		var err error
		job, err = q.client.JobGet(q.t.Context(), id)
		q.must(err)
		return wanted(job)
	})
	return job
}

// awaitCompletion waits until a job has been completed.
func (q *queue) awaitCompletion(id int64) (job *rivertype.JobRow) {
	q.t.Helper()
	return q.await(id, "completed", func(job *rivertype.JobRow) bool { return job.State == rivertype.JobStateCompleted })
}

// awaitSnoozes waits until a job has been snoozed twice. It fails the test if that has cost an attempt.
func (q *queue) awaitSnoozes(id int64) {
	q.t.Helper()
	job := q.await(id, "snoozed", func(job *rivertype.JobRow) bool {
		return snoozes(job) >= 2 && job.State != rivertype.JobStateRunning
	})
	if job.Attempt != 0 || len(job.Errors) != 0 {
		q.t.Errorf("after %d snoozes: attempt %d, errors %v", snoozes(job), job.Attempt, job.Errors)
	}
}

// snoozes returns how often a job has been snoozed, as River counts it.
func snoozes(job *rivertype.JobRow) int {
	var metadata struct{ Snoozes int }
	_ = json.Unmarshal(job.Metadata, &metadata)
	return metadata.Snoozes
}

func isRunning(job *rivertype.JobRow) bool { return job.State == rivertype.JobStateRunning }

// once is for jobs that have no second attempt.
var once = &river.InsertOpts{MaxAttempts: 1}

// While a job of a customer runs, the next one is snoozed, which costs it no attempt. Jobs of others run beside it.
func TestRiverSnoozesJobsOfHeldKeys(t *testing.T) {
	t.Parallel()
	q := newQueue(t, replica.Long)
	one := q.start("one")
	first := q.insert("ann", "first", once)
	one.Await(began + "first")
	other := q.start("other")
	second := q.insert("ann", "second", once)
	ofBob := q.insert("bob", "of bob", once)
	q.awaitSnoozes(second)
	q.await(ofBob, "running", isRunning)

	one.Tell("go on")
	other.Tell("go on")
	for _, id := range []int64{first, second, ofBob} {
		job := q.awaitCompletion(id)
		if job.Attempt != 1 {
			t.Errorf("job %d had %d attempts", id, job.Attempt)
		}
	}
}

// What the lock is for: without it, two jobs of a customer run at a time.
func TestRiverWithoutLockRunsBoth(t *testing.T) {
	t.Parallel()
	q := newQueue(t, replica.Long)
	one := q.start("one", lockless+"=yes")
	first := q.insert("ann", "first", once)
	one.Await(began + "first")
	q.start("other", lockless+"=yes")
	q.await(q.insert("ann", "second", once), "running", isRunning)
	q.await(first, "running", isRunning)
}

// The process that runs a job is killed. The next job of the customer runs after the TTL. River rescues the first one, which
// runs again.
func TestRiverHolderIsKilled(t *testing.T) {
	t.Parallel()
	q := newQueue(t, replica.Usual)
	one := q.start("one")
	first := q.insert("ann", "first", nil)
	one.Await(began + "first")
	one.Kill()

	other := q.start("other")
	second := q.insert("ann", "second", nil)
	other.Await(began + "second")
	other.Tell("go on")
	q.awaitCompletion(second)

	// River rescues a job an hour after its timeout. The process that does it is new, so that it looks for them at once.
	_, err := q.pool.Exec(t.Context(), "UPDATE river_job SET attempted_at = attempted_at - interval '3 hours' WHERE id = $1", first)
	q.must(err)
	q.start("rescuer", rescues+"=yes").Tell("go on")
	job := q.awaitCompletion(first)
	if job.Attempt < 2 {
		t.Errorf("the job of the killed process has had %d attempts", job.Attempt)
	}
}

// A process is cut off from the nodes for locks. The context of its job ends, and the job fails and is tried again elsewhere.
// Jobs that meet the outage are snoozed, which costs no attempt.
func TestRiverHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t, replica.Usual)
	one := q.start("one")
	first := q.insert("ann", "first", nil)
	one.Await(began + "first")
	one.CutOff()
	one.Await(lost + "first")
	second := q.insert("bob", "second", nil)
	q.awaitSnoozes(second)

	other := q.start("other")
	other.Await(began + "first")
	other.Tell("go on")
	q.awaitCompletion(second)
	job := q.awaitCompletion(first)
	if job.Attempt < 2 || len(job.Errors) == 0 || !strings.Contains(job.Errors[0].Error, "lease lost") {
		t.Errorf("the job that lost its lease: attempt %d, errors %v", job.Attempt, job.Errors)
	}
}
