// Package gocronlock runs the jobs of a [cronlock.Service] on a gocron v2 scheduler, so that its listeners, monitor, tags,
// logger and shutdown hold for every run, also for those that start late or by hand.
//
// gocron calls at the ticks of the schedule; which tick is to run, the records of the service say. What gocron drops or
// delays costs a look of the engine, not a tick. Shut the scheduler down before you close the service.
//
// gocron's own definitions (DurationJob, DailyJob and so on) cannot tell their times, so Add takes a [cronlock.Schedule].
// To keep them, give the scheduler the elector of package leader, as gocron.WithDistributedElector does.
package gocronlock
