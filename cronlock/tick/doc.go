// Package tick makes each tick of a schedule run once across the replicas of a service, whatever keeps the schedule: a cron
// library, a queue's scheduler, or a loop with a timer. Package cronlock is this one with gocron.
//
//	schedule, err := cron.ParseStandard("CRON_TZ=UTC 0 3 * * *") // of robfig/cron
//	service, err := tick.New(locker, "billing")
//	job, err := service.Add("invoices", invoice, tick.WithSchedule(schedule), tick.AtLeastOnce(3))
//	c.Schedule(schedule, cron.FuncJob(func() { err := job.RunDue(ctx); ... })) // on each replica
//
// # Guarantee
//
// A tick of a job starts on one replica, and is not started again: neither by a replica whose clock is late, nor after a
// deploy, nor when it took no time at all. It does not start before it is due by the nodes' clocks, as far as they are known.
// Runs of a job do not overlap, whatever replica they are on, unless the job allows it. The context of a run ends before any
// other replica could start the job's next run. All that holds under the assumptions of package core, and as long as a quorum
// of nodes keeps the records of ticks for the retention.
//
// # Non-guarantee
//
// Once is about starts, not effects. A replica that dies in mid-run leaves the effects half done: under [AtMostOnce] nobody
// finishes them, under [AtLeastOnce] they are begun again. For effects that count once, use the tick as idempotency key or
// the fencing token to refuse late writes ([FromContext] has both). A function that does not look at its context goes on when
// its lease is lost; nothing else can tell it. Nor does a tick run at any price: when no quorum of nodes answers, it fails
// with core.ErrUnavailable on every replica, unless [WithRunAnyway] says otherwise.
//
// # Hosts
//
// A host is what keeps the schedule. Every replica has one, and calls [Job.RunDue] for each tick: the job finds out by its own
// schedule which tick that is, so that a call that comes late, or for several ticks at once, is for the latest. A host that
// knows the tick itself, because a task in a queue has it from [Job.Due], calls [Job.Run].
//
// A host that does more between lock and run, such as limits and listeners, calls [Job.Claim], and then Call and End of the
// [Claim]; End without Call gives the tick back. [WithHost] has it run what is not on its schedule, too: ticks again, late, or
// in the place of other replicas.
//
// # Ticks
//
// A tick is an instant that the job's schedule names. Where the schedule names the same instants on all replicas
// ([Tick.Exact]), ticks are told apart by them, however far the replicas' clocks are apart, up to the clock limit. A cron
// expression does so where all replicas have the same, and the same time zone; give robfig/cron's a CRON_TZ.
//
// Where the instants depend on when a replica was started, as those of "@every 5m", the nodes keep a minimum gap between two
// starts: tell the gap to the job ([WithMinGap]), not such a schedule, which Add refuses, and call [Job.Run] with the time of
// the call. Give such jobs a cron expression where you can: what follows about late ticks is not for them.
//
// A replica whose clock is ahead of the nodes' waits until a tick is due by theirs; where that is more than half of the
// period, RunDue returns [ErrEarly], and the tick runs in the background when it is due. Each replica then waits for a random
// time, at most a twentieth of the period and never more than 50 ms, so that replicas share the ticks.
//
// # Late ticks
//
// A tick runs late, within the misfire grace ([WithMisfireGrace]), and once, where the policy of its job wants that:
//
//	because, when it fell due,       it runs                    with
//	no replica ran, or all slept     when one starts or wakes   WithCatchUp
//	nobody led, or the leader died   on the next leader         WithElector
//	no quorum of nodes answered      when one does              WithCatchUp or AtLeastOnce
//
// Which ticks those are follows from the schedule, and not from what a replica has seen: a leader that was stopped when a tick
// fell due runs it. Without WithCatchUp, though, it runs none from before it had the job. Late ticks run in their order, unless
// runs may overlap. Under AtLeastOnce, a tick that was started and not completed runs again also after the grace, for as long
// as the retention ([WithRetention]).
//
// # Modes
//
//	mode                        a tick starts      while its replica dies, or nobody leads
//	AtMostOnce (default)        at most once       lost
//	AtLeastOnce(n)              at least once,     run again by a replica that saw the tick
//	                            at most n times
//	WithElector, AtMostOnce     at most once       lost if it had started, else run by the next leader
//	WithElector, AtLeastOnce    as without         run by the next leader
//	WithRunAnyway(true)         once, or on every  as its crash policy says
//	                            replica while the
//	                            nodes are away
//
// A tick is started when its function is called: before, it is recorded as an attempt. A run that was told to stop (a
// shutdown, a lost leadership or lease) and returned an error counts as one whose replica died; with nil, or an error of its
// own accord, the tick is done. At least once assumes that another replica saw the tick (its host called), or leads, and lives
// on, that nodes answer within the misfire grace, and that runs are shorter than the retention.
//
// With WithRunAnyway and WithCatchUp together, a replica that starts after an outage runs again what others ran during it.
//
// # Ending
//
// Stop the host first, and have the contexts of runs end: robfig/cron's Stop does not do that. Then close the Service, the
// elector, and the Locker. From Close on, nothing starts.
//
// # Names and keys
//
// A job is known by its name, which must be the same on all replicas and in all releases. A Service has one job of a name.
//
// Runs of a job are kept apart by a lease on a key of its own. [WithKey] gives it another: where a job, a task of queuelock, a
// route of httplock and a call of core.Do work on the same thing, the same key made with core.Key keeps all of them apart, and
// each later one has the greater fencing token. The keys of ticks stay the job's own.
//
// # Logs
//
// What an operator must know goes to the logger of the Locker (core.WithLogger): runs whose end could not be recorded, and runs
// without protection. What becomes of each tick is told to the observer.
package tick
