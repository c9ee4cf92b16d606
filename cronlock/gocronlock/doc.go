// Package gocronlock runs the jobs of a [cronlock.Service] on a gocron v2 scheduler, so that the scheduler's listeners,
// monitor, tags, logger and shutdown apply to every run, including late ones and those by hand.
//
// gocron calls a job at its ticks; the records of the service decide which tick runs. If gocron drops or delays a call, the
// engine makes gocron call the job again. Shut the scheduler down before you close the service.
//
// gocron's own definitions (DurationJob, DailyJob and so on) do not expose their times, so Add takes a
// [cronlock.Schedule]. To keep such a definition, pass an Elector of package leader to gocron.WithDistributedElector, on
// a scheduler other than the one given to Add. Ticks of that scheduler that fall due without a leader are lost.
package gocronlock
