// Package cronlock runs each tick of a job's schedule on one of the replicas of a service.
//
//	service, err := cronlock.New(locker, "billing")
//	job, err := service.Add("invoices", cronlock.Crontab("0 3 * * *", time.UTC), func(ctx context.Context) error {
//		run, _ := cronlock.FromContext(ctx)
//		return send(ctx, run.Tick, run.FencingToken) // ctx ends when this replica must stop
//	})
//	defer service.Close(ctx)
//
// # The rules
//
//  1. A tick is an instant that the job's schedule names, the same on every replica; it is due by the nodes' clocks.
//  2. A tick is started at most n times (1 by default, [AtLeastOnce]); each start is recorded by a quorum before the
//     function is called.
//  3. While the job does not run, the replica that has its lease may start the latest tick that is due, by the clocks of the
//     nodes that granted the lease, and that was not started, if it is no older than the grace ([WithGrace]). Older ones are
//     superseded.
//  4. Before that, a tick that was started under AtLeastOnce and not completed is started again, while starts are left, if
//     it is among the last 100 ticks of the schedule as it is now.
//  5. A run holds the job's lease: no two runs overlap, by hand or by tick, and the run's context ends with the lease, the
//     leadership or the host's context.
//  6. A call by a host, such as gocron, makes the engine look for a tick that is due; it does not say which to run. So calls
//     may be late, early, double or dropped. The engine also looks by itself: a second after each tick, five after each call
//     of the host, and when a run ends, also one by hand.
//
// # Guarantee
//
// No tick is started more than n times, and no two runs of a job whose contexts have not ended overlap, under the
// assumptions of package core. While a replica and a quorum of nodes are well during its grace, the latest tick that is due
// starts, unless the job runs longer than that: within two seconds and what its requests take, and at most the TTL and ten
// seconds after the last fault. A tick that must start again starts as soon.
//
// # Non-guarantee
//
// A function that ignores its context continues beside the next run; so does a process that is paused between looking at
// the context and acting. Make the stores that you write to reject a fencing token smaller than the largest they have seen.
// Once is at most once: a tick whose replica dies in the run is not started again. With AtLeastOnce, a tick may be done
// twice: its replica may die, or reach no quorum of nodes, between the end of the function and the record of it.
//
// # What follows from the rules
//
// The death of a replica that runs a job, or has claimed a tick, costs the job up to the TTL of the Locker. A job that takes
// longer than its period runs back to back, the latest tick each time. Where a run ends on a replica that has removed the job,
// or does not lead (a run by hand, or one that goes on after its term), others find out within the TTL. The first replica of
// a new job starts the tick that was due before, if that is within the grace; an older one of a job that was never started is
// not missed. A replica whose clock differs from the nodes' by more than core's clock
// window starts nothing, and logs why. Where replicas disagree about n, during a deploy, the smaller number counts. Another
// schedule under the same name leaves unfinished ticks of the old one alone.
//
// A run whose start is being recorded when the job is removed, or the Service closed, is under way.
//
// An error that the function returns while its context has not ended completes the tick, as nil does. A panic, or an error
// after the context has ended, does not. A panic of a run that the engine began is logged with its stack.
//
// # Every tick
//
// Ticks that did not start in time are superseded, not queued. A job that must act for each of them does so in one run, from
// [Run.Previous] on, the last tick that completed without an error:
//
//	run, _ := cronlock.FromContext(ctx)
//	for tick := schedule.Next(run.Previous); !tick.After(run.Tick); tick = schedule.Next(tick) { … }
//
// Previous is zero if none is known: in a new job, and where none of the last 100 ticks was started. A watermark that the
// job stores with its work is better still.
//
// # Hosts
//
// Without a host, the engine runs the jobs itself. Package gocronlock makes them jobs of a gocron scheduler. Any other cron
// library calls [Job.RunDue] at the ticks and is named by [WithHost]:
//
//	id, _ := c.AddFunc("0 3 * * *", func() { _ = job.RunDue(ctx) }) // robfig/cron; errors are logged
//
// # Records
//
// The keys of a job start with core.Key("cron", service, job): "run" is held while it runs; "start" with a tick and a number,
// and "end" with a tick, are records. Records count for 100 ticks, or up to the last one of a schedule that ends, at least
// for an hour and the grace and at most a year; Redis keeps them for two hours more. A tick takes about 700 bytes on each
// node (TestFootprintOfATick): 150 kB for a job of every minute, 8 MB for one of every second.
package cronlock
