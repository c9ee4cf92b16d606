package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A process is one replica from its start to its end.
type process struct {
	*world
	who     int
	number  int // no two processes have the same
	name    string
	locks   *locktest.Locker
	elector *leader.Elector
	service *cronlock.Service
	second  *cronlock.Service // with other options; nil if there is none
	ahead   atomic.Int64      // how far its host's clock is ahead, as a time.Duration

	looks atomic.Int64 // how often gocron has read the clock

	host   context.Context // ends with the host
	stop   context.CancelFunc
	calls  sync.WaitGroup
	asleep atomic.Bool // the host drops calls
	died   chan struct{}

	hasElector chan struct{} // closed when elector is set, if there is one

	// world.mu guards the fields below.
	job       *cronlock.Job // nil if the process has none
	starts    int           // the number of starts that the job allows
	scheduler gocron.Scheduler
	under     *gocronlock.Job
	dead      bool // killed
	closed    bool // it is about to end
	isClosing bool // Close of its Service was called
	running   int

	granted       time.Time // when it was last granted the job's lease
	left, arrived time.Time // when it left the job, or zero; when it got the job, or zero
	writing       time.Time // the tick whose start was requested last
	attempt       int       // the number of that start
	closes        *visit    // the run whose end is being recorded
	wrote         time.Time // the tick whose start was being recorded when the process left
	between       []int     // the number of ticks that each run superseded; -1 if in doubt
	superseded    []int     // the number of superseded ticks that each run reported to the observer
	listened      int       // runs that gocron's listeners have let pass and that have not begun
	reigns        int       // calls of OnElected that have not returned
	answers       int       // runs by hand, and refusals that may concern one
	taking        int       // requests of polls for the job's lease that are under way
	removed       bool      // the job was removed once, so polls of two jobs may overlap
	asked         bool      // it was asked to resign
	resigned      time.Time // when it last resigned
	termEnded     time.Time // when its last term ended, also by a loss
	cut           time.Time // since when it has been cut off
}

// start starts a process of a replica, unless one lives.
func (w *world) start(who int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.replicas[who] != nil {
		return
	}
	w.incarnations++
	p := &process{world: w, who: who, number: w.incarnations, died: make(chan struct{}), hasElector: make(chan struct{})}
	w.tasks.Go(p.launch)
}

// launch makes the process. That may take time.
func (p *process) launch() {
	w := p.world
	p.name = fmt.Sprintf("%d.%d", p.who, p.number)
	p.ahead.Store(int64(time.Duration(w.Is(fmt.Sprint("ahead ", p.who))) * time.Millisecond))
	p.host, p.stop = context.WithCancel(context.Background())

	opts := []core.Option{core.TTL(w.ttl), core.WithObserver(core.Observer{Start: p.operation, Event: p.event})}
	if w.Is("no window") == 1 {
		opts = append(opts, core.WithClockWindow(0))
	}
	p.locks = w.first.Replica(opts...)

	var with []cronlock.Option
	var err error
	if w.Is("elector") == 1 {
		p.elector, err = leader.New(p.locks.Locker, "group", leader.WithCandidate(p.name), leader.OnElected(p.elected))
		w.must(err)
		close(p.hasElector)
		with = append(with, cronlock.WithElector(p.elector))
	}

	p.service, err = cronlock.New(p.locks.Locker, "service", with...)
	w.must(err)
	if w.Is("second") == 1 {
		p.Count("second service")
		p.second, err = cronlock.New(p.locks.Locker, "second")
		w.must(err)
		_, err = p.second.Add(secondJob, cronlock.Every(otherPeriod(w.Program)), p.other, cronlock.AtLeastOnce(2), cronlock.WithGrace(w.ttl+2*time.Second))
		w.must(err)
	}

	if off := w.off().Abs(); off > 0 { // the process does not know the nodes' clocks before a node has answered
		w.trouble(off, "a clock that is not known")
	}

	if w.Is(fmt.Sprint("host ", p.who)) == 1 {
		options := []gocron.SchedulerOption{gocron.WithClock(skewed{clockwork.NewRealClock(), p})}
		if limit := w.Is("limit"); limit > 0 {
			options = append(options, gocron.WithLimitConcurrentJobs(1, map[int]gocron.LimitMode{1: gocron.LimitModeReschedule, 2: gocron.LimitModeWait}[limit]))
		}
		p.scheduler, err = gocron.NewScheduler(options...)
		w.must(err)
		p.scheduler.Start()
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.network(p)
	w.replicas[p.who] = p
	if p.add(); w.over {
		p.shut()
		w.tasks.Go(func() { p.end(true) })
	}
}

func (p *process) now() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }

// skewed is the clock that gocron uses in a process. It never shows the same time twice. Otherwise gocron, which may
// run a job at the very instant of a tick after a jump, would repeat that for ever.
type skewed struct {
	clockwork.Clock
	p *process
}

func (s skewed) Now() time.Time { return s.p.now().Add(time.Duration(s.p.looks.Add(1))) }

// tag is the tag of the job in gocron.
const tag = "nightly"

// add adds the job. w.mu must be held.
func (p *process) add() {
	p.starts = max(1, p.Is("starts"))
	var opts []cronlock.JobOption
	if others := p.Is("others"); others > 0 && p.number%2 == 0 {
		p.starts = others
	}
	if p.starts > 1 || p.Is("starts") > 0 {
		opts = append(opts, cronlock.AtLeastOnce(p.starts))
	}
	if p.Is("grace") > 0 {
		opts = append(opts, cronlock.WithGrace(p.grace))
	}

	p.fewest = min(p.fewest, p.starts)
	p.asleep.Store(false)

	var err error
	switch p.Is(fmt.Sprint("host ", p.who)) {
	case 1:
		p.Count("gocron")
		p.under, err = gocronlock.Add(p.scheduler, p.service, "job", p.schedule, p.work, gocronlock.Policy(opts...), gocronlock.Tags(tag), gocronlock.Listeners(
			gocron.BeforeJobRunsSkipIfBeforeFuncErrors(p.listener),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { p.told(nil, err) }),
			gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) {})))
		if err != nil {
			p.Violation("%s: the job is not added: %v", p.name, err)
			return
		}
		p.job = p.under.Job
	case 2:
		p.Count("host")
		added := make(chan struct{})
		p.job, err = p.service.Add("job", p.schedule, p.work, append(opts, cronlock.WithHost(func() {
			if <-added; !p.drops() {
				p.call(p.host)
			}
		}))...)
		p.must(err)
		close(added)
		p.calls.Go(func() { p.hosted(p.job) })
	default:
		p.Count("engine")
		p.job, err = p.service.Add("job", p.schedule, p.work, opts...)
		p.must(err)
	}

	p.present(p)
}

// hosted calls the job at each tick by the clock of the process, as a cron library does, until the job is removed.
func (p *process) hosted(job *cronlock.Job) {
	for {
		now := p.now()
		next := p.schedule.Next(now)
		if next.IsZero() || !pause.For(p.host, next.Sub(now)) || p.current() != job {
			return
		}
		if !p.drops() {
			p.calls.Go(func() { p.call(p.host) })
		}
	}
}

// drops reports whether the host drops a call.
func (p *process) drops() bool {
	if p.asleep.Load() {
		p.trouble(6*time.Second-p.tail(), "host drops a call") // the engine asks for another call after 5 s
		return true
	}
	return false
}

func (p *process) current() *cronlock.Job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.job
}

func (p *process) call(ctx context.Context) {
	defer func() { _ = recover() }() // cron libraries recover from panics of their jobs
	p.mu.Lock()
	job, under := p.job, p.under
	p.mu.Unlock()
	switch {
	case job == nil:
	case under != nil:
		// gocron calls the job only when the engine asks for it.
	default:
		p.told(job, job.RunDue(ctx))
	}
}

var errSkipped, errOwn, errPanic = errors.New("not here"), errors.New(strings.Repeat("no paper ", 30)), errors.New("boom")

// listener refuses some of gocron's runs.
func (p *process) listener(uuid.UUID, string) error {
	p.mu.Lock()
	skip := p.rng.IntN(1000) < p.Is("skipped")
	if skip {
		p.answers++
	} else {
		p.listened++
	}
	p.mu.Unlock()
	if !skip {
		return nil
	}

	p.Count("skipped by a listener")
	time.Sleep(300 * time.Millisecond)
	p.trouble(6*time.Second-p.tail(), "a listener skips")
	return errSkipped
}

// kill makes the process look dead to all others: its link is cut for good, and its runs are not judged any more. A new
// process starts after s.For.
func (p *process) kill(s sim.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.closed || p.over {
		return
	}
	p.Tracef("%s dies", p.name)
	p.locks.Link.Kill()
	p.absent(p)
	p.dead, p.job = true, nil
	close(p.died)
	p.trouble(0, "killed")
	p.tasks.Go(func() { p.end(true) })
	p.replicas[p.who] = nil
	time.AfterFunc(s.For, func() { p.start(p.who) })
}

// close shuts the process down, and starts a new one after s.For.
func (p *process) close(s sim.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.closed || p.over {
		return
	}
	p.Tracef("%s shuts down", p.name)
	p.shut()
	p.tasks.Go(func() {
		p.end(s.N == 0)
		p.mu.Lock()
		p.replicas[p.who] = nil
		p.mu.Unlock()
		time.AfterFunc(s.For, func() { p.start(p.who) })
	})
}

// shut is called when the process is about to end. w.mu must be held.
func (p *process) shut() {
	p.absent(p)
	p.closed, p.job = true, nil
	p.trouble(0, "shut down")
}

// end ends the process. The host ends before the Service if hostFirst is true, and otherwise after it.
func (p *process) end(hostFirst bool) {
	if hostFirst {
		p.endHost()
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if p.second != nil {
		p.must(p.second.Close(ctx))
	}

	p.mu.Lock()
	p.leaves(p)
	p.isClosing = true
	p.asked = true // the Service makes the elector resign
	p.mu.Unlock()
	if p.elector != nil && p.elector.IsLeader(ctx) == nil {
		since := time.Now()
		time.AfterFunc(lingers+p.ttl+time.Second, func() { p.yielded(since) })
	}

	err := p.service.Close(ctx)
	p.mu.Lock()
	if !p.dead && (err != nil || p.running > 0) {
		p.Violation("%s: Close returns %v, and %d runs go on", p.name, err, p.running)
	}
	p.mu.Unlock()

	p.endHost()
	if p.scheduler != nil {
		time.Sleep(time.Second) // while Shutdown waits, it spins, and the clock of the bubble stands still
		p.must(p.scheduler.Shutdown())
	}

	if p.elector != nil {
		p.mu.Lock()
		p.asked = true
		p.mu.Unlock()
		err := p.elector.Close(ctx)
		p.mu.Lock()
		if !p.dead && (err != nil || p.reigns > 0) {
			p.Violation("%s: the elector's Close returns %v, and OnElected goes on %d times", p.name, err, p.reigns)
		}
		p.mu.Unlock()
	}

	// While go-redis dials for a subscription, it holds a mutex. If Close waited for that mutex, the clock of the
	// bubble would stand still.
	time.Sleep(90 * time.Second)
	_ = p.locks.Close(ctx)
}

// endHost ends the host. gocron's Shutdown spins while it waits for a run, and the clock of the bubble stands still. So
// endHost removes gocron's jobs, which ends the contexts of the runs as Shutdown would, and Shutdown is called later.
func (p *process) endHost() {
	p.stop()
	if p.scheduler != nil {
		for _, j := range p.scheduler.Jobs() {
			_ = p.scheduler.RemoveJob(j.ID())
		}
	}
	if p.Is(fmt.Sprint("host ", p.who)) > 0 {
		now := time.Now()
		time.Sleep(time.Millisecond)
		p.stopped(p, now)
	}
	p.calls.Wait()
}

// remove removes the job, and adds it again after s.For.
func (p *process) remove(s sim.Step) {
	p.mu.Lock()
	job, under := p.job, p.under
	if job == nil || p.over {
		p.mu.Unlock()
		return
	}

	p.absent(p)
	p.removed = true
	p.job, p.under = nil, nil
	p.leaves(p)
	p.trouble(time.Duration(p.Is("elector"))*s.For, "removed") // if this process leads, no other one can meanwhile
	p.mu.Unlock()

	if under != nil {
		now := time.Now()
		switch s.N {
		case 1:
			p.removeListed()
		case 2: // also removes the calls that wait or run
			p.Count("removed by its tag")
			p.scheduler.RemoveByTags(tag)
			time.Sleep(time.Millisecond)
			p.stopped(p, now)
		default:
			p.must(under.Remove())
			time.Sleep(time.Millisecond) // gocron removes the job in the background
			p.stopped(p, now)
		}
	} else {
		job.Remove()
	}

	time.AfterFunc(s.For, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.dead && !p.closed && !p.over {
			p.incarnations++
			p.number = p.incarnations
			p.add()
		}
	})
}

// removeListed removes the job as a user may do: by its ID from gocron's list of jobs. The list also contains the calls
// of the job, which stay. Runs under way go on.
func (p *process) removeListed() {
	p.Count("removed by the scheduler")
	for _, j := range p.scheduler.Jobs() {
		if next, err := j.NextRun(); err == nil && next.After(time.Now().AddDate(100, 0, 0)) {
			p.must(p.scheduler.RemoveJob(j.ID()))
		}
	}
}
