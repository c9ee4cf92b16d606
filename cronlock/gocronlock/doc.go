// Package gocronlock runs the jobs of a [cronlock.Service] on a gocron v2 scheduler, so that the scheduler's listeners,
// monitor, tags, logger and shutdown apply to every run, including late ones and those by hand.
//
// The engine of the service makes gocron call a job when a tick is due. The records of the service decide which tick
// runs. At most one call of a job waits in gocron's queue. If gocron drops a call, the engine requests another. If the
// user removes the job from the scheduler, or shuts the scheduler down, the job leaves the service. Shut the scheduler
// down before you close the service.
//
// gocron's own definitions (DurationJob, DailyJob and so on) do not expose their times, so Add takes a
// [cronlock.Schedule]. To keep such a definition, do not use Add for that job. Create a second gocron scheduler with
// gocron.WithDistributedElector and an Elector of package leader, and define the job there. Its ticks that fall due
// without a leader are lost.
package gocronlock
