// Package gocronlock runs the jobs of a [cronlock.Service] on a gocron v2 scheduler, so that its listeners, monitor, tags,
// logger and shutdown hold for every run, also for those that start late or by hand.
//
// gocron calls at the ticks of the schedule; the records of the service decide which tick runs. A call that gocron drops or
// delays loses no tick. Shut the scheduler down before you close the service.
//
// gocron's own definitions (DurationJob, DailyJob and so on) do not expose their times, so Add takes a [cronlock.Schedule].
// To keep them, give the scheduler the elector of package leader, as gocron.WithDistributedElector does.
package gocronlock
