// Package nemesis breaks servers, networks, clocks and processes under work on locks, and judges afterwards whether the
// locks kept the promises of their documents. Everything is real: redis-servers, processes, connections.
//
// A run has parts, each with other servers ([part]). A part draws a plan of faults from the seed, and plays it while client
// processes work ([Client]). Each client logs the results of its lock, by the one clock of the machine. It also shows its
// fencing token to a referee whenever it works, which knows nothing of locks ([Referee]). The judge compares the log and
// the referee's book with the promises ([judge]).
//
// The judges demand:
//
//   - No two leases on a key are live at a time. Tokens grow. The grants and ends of each key could come from a lock
//     (package history, which asks porcupine).
//   - No more callers hold a key at a time than there are permits for it. A permit is judged like a lease on a key of its
//     own, its slot.
//   - The referee accepts no write with a smaller token than one that it accepted before, and refuses no holder whose
//     context is live.
//   - Once a record is reported, the key is not granted again, and no tick of a job starts twice, unless a server lost its
//     memory in between.
//   - A key that was released with a cooldown is not granted before its end, and the holder of a revoked lease does not
//     act on it for longer than the revocation says, unless a server lost its memory.
//   - When all faults are over, every client is granted keys again.
//
// Another lock takes the place of lockkit by an implementation of [Locks] (openers); sets of keys and permits
// are optional ([SetLocks], [PermitLocks]). A new kind of work is one more
// [workload] (workloads).
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Deliberate breaks, which give the judge something to find.
const (
	BreakGuard   = "guard"   // the Lockers have no restart guard
	BreakContext = "context" // clients go on working when the context of their lease has ended
	BreakTokens  = "tokens"  // the referee accepts every write
)

// Options configures a run.
type Options struct {
	Length time.Duration
	Seed   uint64    // draws all faults
	Only   int       // the number of the one part to run; 0: as many as fit
	Lock   string    // the lock under test, a name in openers
	Break  string    // a deliberate break; empty: none
	Shim   string    // the library that moves the clocks of servers; empty: they stay
	Moved  bool      // this program was built so that the clock of a process can be moved
	Docs   string    // the directory with proof.md and proof, to be written; empty: a new directory gets the report
	Out    io.Writer // gets the text
}

// Run runs the parts one after another, and writes the report. The error says that something was violated, or that a part
// could not be run.
func Run(ctx context.Context, o Options) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // faults are the subject, not the Lockers' logs of them
	if !testutil.ServerAvailable() {
		return errors.New("no redis-server on PATH: make tools installs it")
	}

	if _, ok := openers[o.Lock]; !ok {
		return fmt.Errorf("no lock is named %q", o.Lock)
	}

	if o.Shim == "" {
		fmt.Fprintln(o.Out, "SKIPPED: the clocks of servers stay as they are: there is no library that moves them")
	}

	if !o.Moved {
		fmt.Fprintln(o.Out, "SKIPPED: the clocks of clients stay as they are: the program was not built for it")
	}

	clocks, err := openClocks(o.Shim)
	if err != nil {
		return err
	}

	defer clocks.close()

	var results []result
	var failed error
	for _, p := range o.parts() {
		if ctx.Err() != nil {
			break
		}

		fmt.Fprintf(o.Out, "==> part %s, for %v\n", p, p.length.Round(time.Second))
		r, err := runPart(ctx, o, p, clocks)
		if err != nil {
			err = fmt.Errorf("part %s: %w", p, err)
			fmt.Fprintf(o.Out, "%v\n\n", err)
			failed = errors.Join(failed, err)
			continue
		}

		results = append(results, r)
		r.print(o.Out)
	}
	return errors.Join(failed, report(o, results))
}

// A part is one set of servers.
type part struct {
	number      int
	nodes       int
	persistence persistence
	guard       bool
	skews       bool // the clocks of clients are moved, instead of the clocks of servers
	length      time.Duration
}

func (p part) String() string {
	guard := "without the restart guard"
	if p.guard {
		guard = "with the restart guard"
	}

	clocks := "servers"
	if p.skews {
		clocks = "clients"
	}

	return fmt.Sprintf("%d: %d × redis-server, persistence %s, %s, clocks of %s", p.number, p.nodes, p.persistence, guard, clocks)
}

// forgetful reports whether servers of a part may lose their memory. A single server without the guard must not.
func (p part) forgetful() bool { return p.guard || p.nodes > 1 }

type persistence string

const (
	persistOff persistence = "off"
	persistAOF persistence = "AOF" // written before the reply, but not synced: a killed process forgets nothing
	persistRDB persistence = "RDB"
)

func (p persistence) args() []string {
	// DEBUG SLEEP is a fault.
	args := []string{"--enable-debug-command", "local"}

	switch p {
	case persistAOF:
		return append(args, "--appendonly", "yes", "--appendfsync", "no")
	case persistRDB:
		return append(args, "--save", "2 1")
	default:
		return args
	}
}

// leastPart is how long a part takes at least.
const leastPart = time.Minute

// allParts are in the order in which they are worth most: a short run has the first ones.
var allParts = []part{
	{nodes: 3, persistence: persistOff, guard: true},
	{nodes: 5, persistence: persistAOF, guard: true, skews: true},
	{nodes: 1, persistence: persistAOF, guard: false},
	{nodes: 3, persistence: persistRDB, guard: true, skews: true},
	{nodes: 5, persistence: persistOff, guard: true},
	{nodes: 1, persistence: persistRDB, guard: true},
	{nodes: 3, persistence: persistAOF, guard: true},
	{nodes: 5, persistence: persistRDB, guard: true, skews: true},
}

// parts returns the parts to run, and gives each its length.
func (o Options) parts() (chosen []part) {
	for i, p := range allParts {
		p.number = i + 1
		p.guard = p.guard && o.Break != BreakGuard
		if o.Only == 0 || o.Only == p.number {
			chosen = append(chosen, p)
		}
	}

	fits := max(1, int(o.Length/leastPart))
	chosen = chosen[:min(len(chosen), fits)]

	for i := range chosen {
		chosen[i].length = o.Length / time.Duration(len(chosen))
	}

	return chosen
}
