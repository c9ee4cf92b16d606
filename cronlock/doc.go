// Package cronlock runs the cron jobs of a service that has several replicas. One replica at a time runs a job, and by
// default no tick of the job's schedule is started twice.
//
//	service, err := cronlock.New(locker, "billing")
//	schedule := cronlock.Crontab("0 3 * * *", time.UTC) // five fields, or six with the seconds first
//	job, err := service.Add("invoices", schedule, func(ctx context.Context) error {
//		run, _ := cronlock.FromContext(ctx)
//		return send(ctx, run.Tick, run.FencingToken) // ctx ends when this replica must stop
//	})
//	defer service.Close(ctx)
//
// Each [Service] has an engine, which looks for ticks to start. A host is a cron library that runs a job. If a job has a
// host ([WithHost]), the engine does not run the job but asks the host to call [Job.RunDue] or [Job.Claim]. With
// [WithElector], only the leader starts ticks. Package core explains nodes, quorum and lease.
//
// # The rules
//
//  1. A tick is an instant of the job's schedule, the same on every replica. It is due when the nodes' clocks reach it.
//  2. A tick is started at most n times (n is 1 unless [AtLeastOnce] sets it). A quorum of nodes records each start before
//     the function is called. A tick is completed when the function returns nil. It is also completed when the function
//     returns an error before the run's context has ended.
//  3. While the job does not run, a replica that is granted the job's lease may start the latest due tick, if that tick was
//     not started and is no older than the grace ([WithGrace]; a minute by default, or three TTLs if that is longer). Once
//     the lease is granted, the replica decides which tick is due, from what it then knows of the nodes' clocks. Ticks
//     before the latest are superseded.
//  4. If the latest tick that was started is not completed, it goes first: it is started again, whatever its age, if
//     AtLeastOnce allows it another start and it is among the last 100 ticks of the current schedule.
//  5. A run, by tick or by hand ([Job.RunNow]), holds the job's lease, so no two runs overlap. The run's context ends with
//     the lease, and with the context passed to the call that began the run. The engine passes a context that never ends.
//     If a tick began the run, its context also ends with the leadership.
//  6. A call by a host makes the engine look for a due tick. The call does not choose the tick, so calls may be late,
//     early, double or dropped. The engine also looks on its own: at each tick, or a second later if the job has a host;
//     five seconds after it asked the host to call; five seconds after a claim that got the lease and started nothing; a
//     second after a request failed; when any run ends; when the lease of a holder on another replica is due to end; when
//     this process becomes leader; and at least once a minute while ticks are to come.
//
// # Guarantee
//
// No tick is started more than n times. No two runs of a job have live contexts at the same time. Both hold under the
// assumptions of package core.
//
// The latest due tick starts if, during its grace, at least one replica and a quorum of nodes are well, and no run of the
// job lasts longer than the grace. With an elector, one of these replicas must also lead. Once the tick is due and the job
// does not run, it starts within two seconds plus the time of its requests. A call that the host drops or refuses costs
// five seconds more. After a fault has ended, it starts within the TTL plus ten seconds; after a majority of the nodes had
// wrong clocks, it may take a minute more. The same bounds hold for a tick that must start again.
//
// # Non-guarantee
//
// A function that ignores its context continues beside the next run. So does a process that is paused between looking at
// the context and acting. Make the stores that you write to reject a fencing token smaller than the largest they have seen.
//
// Not every tick starts: it may be superseded, or missed ([ErrMissed]) when its grace has passed. By default, a tick whose
// replica dies during the run is not started again. With AtLeastOnce, a tick may be done twice: its replica may die, or
// reach no quorum of nodes, between the end of the function and the record of that end.
//
// # What follows from the rules
//
// If a replica dies while it runs a job, or while it holds the job's lease to start a tick, the job stays taken for up to
// the TTL of the Locker. A run may end on a replica that has removed the job. It may also end on a replica that is not the
// leader, if it was started by hand or went on after the replica had stopped leading. The other replicas then notice within
// the TTL that the job is free.
//
// A job that takes longer than its period runs back to back, each time for the latest tick, if the grace is as long as the
// period. The first replica of a new job starts the latest tick from before the job was added, if the grace allows it. If a
// job was never started, a tick that is older than the grace and fell due before this process added the job does not count
// as missed.
//
// A replica whose clock differs from the nodes' by more than core's clock window starts nothing, and logs why.
//
// If replicas disagree about n, as during a deploy, the smaller number counts. If a job gets another schedule, an
// uncompleted tick that the new schedule does not have is not started again. If a job is removed, or the Service closed,
// while a start is being recorded, that run counts as under way and goes on.
//
// If a run that the engine began panics, the engine recovers and logs the panic with its stack. Errors that a function
// returns are not logged; see [Past].
//
// # Every tick
//
// Superseded ticks are not queued. A job that must act for every tick does so in one run, for all ticks after
// [Run.Previous], the last tick known to have completed without an error:
//
//	run, _ := cronlock.FromContext(ctx)
//	tick := run.Tick // zero in a run by hand
//	if !run.Previous.IsZero() {
//		tick = schedule.Next(run.Previous)
//	}
//	for ; !tick.IsZero() && !tick.After(run.Tick); tick = schedule.Next(tick) { … }
//
// Previous is zero before the first success, and if none of the last 100 ticks was started. The
// loop then acts for run.Tick alone. A watermark that the job stores with its work is better still.
//
// # Hosts
//
// Package gocronlock runs the jobs of a Service on a gocron scheduler. Let any other cron library call [Job.RunDue] or
// [Job.Claim] at the ticks, and once more when the function given to WithHost asks for it:
//
//	id, _ := c.AddFunc("0 3 * * *", func() { logUnexpected(job.RunDue(ctx)) }) // robfig/cron; see IsExpected
//
// # Shutdown
//
// First stop the host, then call Service.Close with a deadline, then close the elector and the Locker. Close lets nothing
// start any more and waits for the runs of this replica. It does not end their contexts. If its deadline comes first, Close
// returns the names of the jobs that still run. Those runs go on. Closing the elector ends the contexts of runs that a tick
// began; closing the Locker ends the contexts of all runs.
//
// # Records
//
// The keys of a job start with core.Key("cron", service, job). The key "run" is held while the job runs. The keys "start",
// with a tick and a number, and "end", with a tick, are records. A record is valid for 100 ticks or, if the schedule ends
// earlier, until the schedule's last tick. In either case it is valid for at least the grace plus an hour, and for at most
// a year. Redis keeps the record for two hours more. A tick takes about 750 bytes on each node (TestFootprintOfATick): 165
// kB for a job that runs every minute, 8 MB for one that runs every second.
package cronlock
