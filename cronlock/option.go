package cronlock

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/cronlock/tick"
	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

// A JobOption is a policy of a job: given to New it is the default of all jobs, given to [Cron.Add] it is that of one.
type JobOption interface {
	Option
	applyJob(*jobConfig)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type jobOption func(*jobConfig)

func (o jobOption) apply(c *config)       { o(&c.jobs) }
func (o jobOption) applyJob(c *jobConfig) { o(c) }

type config struct {
	clock clockwork.Clock
	ticks []tick.Option
	jobs  jobConfig
}

type jobConfig struct {
	policy []tick.JobOption
	gocron []gocron.JobOption
	gapped bool // ticks are told apart by a minimum gap alone
}

func defaults() config { return config{clock: clockwork.NewRealClock()} }

func ofService(o tick.Option) Option {
	return option(func(c *config) { c.ticks = append(c.ticks, o) })
}

func policy(o tick.JobOption) JobOption {
	return jobOption(func(c *jobConfig) { c.policy = append(slices.Clip(c.policy), o) })
}

// WithClock says which clock the scheduler has, if it was given one by gocron.WithClock.
func WithClock(clock clockwork.Clock) Option { return option(func(c *config) { c.clock = clock }) }

// WithGocron sets options of gocron for the job, such as tags, listeners and singleton mode. They also hold for its runs
// by RunNow, and for those in the place of other replicas, which are one-time jobs to gocron, of the same name. The name,
// the identifier of such jobs and the locker are not theirs to set. gocron.WithLimitedRuns is refused: it counts the runs
// of one replica.
func WithGocron(opts ...gocron.JobOption) JobOption {
	return jobOption(func(c *jobConfig) { c.gocron = append(slices.Clip(c.gocron), opts...) })
}

func (c *jobConfig) check(f *faults.List) {
	f.Check(slices.ContainsFunc(c.gocron, func(o gocron.JobOption) bool { return o == nil }), "an option of gocron is nil")
	f.Check(traitsOf(c.gocron).limited, "gocron.WithLimitedRuns counts the runs of one replica, and not those of the service")
}

// traits are what must be known of gocron's options for a job.
type traits struct {
	limited     bool      // WithLimitedRuns
	custom      bool      // WithCronImplementation: the crontab may mean anything
	singleton   bool      // WithSingletonMode
	start, stop time.Time // WithStartAt and WithStopAt; zero: none
}

// traitsOf applies the options to a job that is none, because gocron does not tell what they are.
func traitsOf(opts []gocron.JobOption) (t traits) {
	if len(opts) == 0 {
		return t
	}
	job := reflect.New(reflect.TypeFor[gocron.JobOption]().In(0).Elem())
	for _, o := range opts {
		_ = apply(o, job, time.Time{}) // what is wrong with it, gocron says; and no start is past
	}
	is := func(name string) bool {
		f := job.Elem().FieldByName(name)
		return f.IsValid() && !f.IsZero()
	}
	instant := func(name string) (at time.Time) {
		if f := job.Elem().FieldByName(name); f.IsValid() {
			at = *(*time.Time)(f.Addr().UnsafePointer())
		}
		return at
	}
	return traits{is("limitRunsTo"), is("cron"), is("singletonMode"), instant("startTime"), instant("stopTime")}
}

// apply applies an option of gocron to a job.
func apply(o gocron.JobOption, job reflect.Value, now time.Time) error {
	if o == nil {
		return nil
	}
	err, _ := reflect.ValueOf(o).Call([]reflect.Value{job, reflect.ValueOf(now)})[0].Interface().(error)
	return err
}

// withoutPast leaves out a start that is past by now: gocron refuses it, though it was good when the job was added.
func withoutPast(opts []gocron.JobOption, now time.Time) []gocron.JobOption {
	return slices.DeleteFunc(slices.Clone(opts), func(o gocron.JobOption) bool {
		job := reflect.New(reflect.TypeFor[gocron.JobOption]().In(0).Elem())
		return errors.Is(apply(o, job, now), gocron.ErrWithStartDateTimePast)
	})
}

// withoutBounds leaves out what is not for a run beside the schedule: start and stop, which gocron refuses once they are past,
// and singleton mode, for which it keeps a goroutine for each job, also when that is gone.
func withoutBounds(opts []gocron.JobOption) []gocron.JobOption {
	return slices.DeleteFunc(slices.Clone(opts), func(o gocron.JobOption) bool {
		t := traitsOf([]gocron.JobOption{o})
		return t.singleton || !t.start.IsZero() || !t.stop.IsZero()
	})
}
