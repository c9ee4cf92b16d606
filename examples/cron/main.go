// Cron shows three replicas of one service, each a process with a gocron
// scheduler of its own, whose jobs run once per tick. The clock of one scheduler
// is off by a third of a second, one replica is killed in the middle of a run, and
// one shuts down in the middle of another.
//
//	go run ./examples/cron
//	go run ./examples/cron -elector       # only the leader runs jobs; the next one runs what was left
//	go run ./examples/cron -unprotected   # the same without cronlock: each replica runs everything
//	go run ./examples/cron -chaos -for 130s [-elector]
//
// The last one takes longer: four replicas, whose schedulers' clocks are up to five seconds off, are killed and
// stopped at random, and nodes lose their memory. "make chaos-cron" moves the clocks of the whole processes.
//
// The nodes are redis-server processes where that is on PATH and embedded ones
// otherwise. The exit status is 0 if the runs followed the rules of cronlock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

func main() {
	unprotected := flag.Bool("unprotected", false, "run the jobs without cronlock")
	elector := flag.Bool("elector", false, "make the replicas elect a leader, which runs the jobs")
	chaos := flag.Bool("chaos", false, "kill and stop four replicas at random, and empty nodes")
	length := flag.Duration("for", 130*time.Second, "with -chaos: how long")
	flag.Parse()
	m := mode{unprotected: *unprotected, elector: *elector, chaos: *chaos}
	if os.Getenv(envReplica) != "" {
		stage.Play("cron", replica)
		return
	}
	stage.Run("cron", func(ctx context.Context) error { return show(ctx, m, *length) })
}

// patience is how long the demo waits for what should come within seconds.
const patience = time.Minute

// A mode is how the replicas run their jobs, and what becomes of them.
type mode struct{ unprotected, elector, chaos bool }

// A member is a replica, with a clock that is ahead by so much.
type member struct {
	name  string
	ahead time.Duration
}

func (m member) String() string { return fmt.Sprint(m.name, " ", m.ahead) }

func (m mode) members() []member {
	if m.chaos {
		return chaosMembers
	}
	return []member{{"a", 0}, {"b", 0}, {"c", skew}}
}

func (m mode) jobs() []job {
	if m.chaos {
		return chaosJobs
	}
	return jobs
}

// show starts nodes and replicas, and has the demo or the chaos take its course.
func show(ctx context.Context, m mode, length time.Duration) error {
	nodes, err := testutil.StartNodes(3)
	if err != nil {
		return err
	}
	defer nodes.Close()
	if err := stage.Provision(ctx, nodes.URLs(), m.lockerOptions()...); err != nil {
		return err
	}
	fmt.Printf("three nodes: %s; replicas, and by how much their clocks are ahead: %v\n\n", nodes.Kind, m.members())
	rs := newReplicas(nodes.URLs(), m, newRecord(os.Stdout, m.chaos))
	defer rs.stop() // also when one could not be started
	for _, who := range m.members() {
		if err := rs.start(who); err != nil {
			return err
		}
	}
	begin, err := rs.ready(ctx)
	if err != nil {
		return err
	}
	if m.chaos {
		return chaos(ctx, begin, length, rs, nodes)
	}
	return demo(ctx, begin, rs)
}

func demo(ctx context.Context, begin time.Time, rs *replicas) error {
	err := plot(ctx, begin, rs)
	end := time.Now()
	err = errors.Join(err, rs.stop())

	var judges []*judge
	for _, j := range jobs {
		judges = append(judges, newJudge(rs.rec.kept.All(), j, rs.mode, begin, end))
	}
	fmt.Printf("\n%s\n%s\n", table(judges, rs.rec.these(isKilled, leaves)), sums(judges))
	for _, j := range judges {
		err = errors.Join(err, j.check())
	}
	if err == nil {
		fmt.Println("verdict: no tick was started too often or beside a run, and none that was to be run again was forgotten")
	}
	return err
}

// plot returns when the demo is over.
func plot(ctx context.Context, begin time.Time, rs *replicas) error {
	rec := rs.rec
	first, err := midReport(ctx, begin.Add(4*time.Second), rec)
	if err != nil {
		return err
	}
	if err := rs.kill(first.Replica, "in the middle of report"); err != nil {
		return err
	}

	second, err := midReport(ctx, first.Tick.Add(time.Second), rec)
	if err != nil {
		return err
	}
	rec.add(event{Replica: second.Replica, Kind: leaves, At: time.Now(), Text: "in the middle of report, as in a deployment"})
	if err := rs.all[second.Replica].stop(); err != nil {
		return err
	}
	return stage.Sleep(ctx, 4*time.Second)
}

// midReport returns in the middle of a run of report, of the first tick that is not before the given instant.
func midReport(ctx context.Context, from time.Time, rec *record) (event, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := rec.kept.Wait(waiting, func(e event) bool {
		return e.Kind == runStarts && e.Job == "report" && !e.Tick.Before(from)
	})
	if err != nil {
		return e, fmt.Errorf("waiting for a run of report: %w", err)
	}
	return e, stage.Sleep(ctx, 400*time.Millisecond)
}
