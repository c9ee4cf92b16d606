// Package sim runs random programs in virtual time, checks each run against rules (the oracle), and shrinks programs
// that break one. The simulations of core and of the adapters, which are in their tests, use it.
//
// [Seeds] runs a trial for many seeds, and says how to run one again. In a [Campaign], each seed draws a [Program]:
// numbers that describe the processes, and steps that happen to them. If a program breaks a rule, smaller versions of
// it are run, as long as they still break a rule; the smallest is printed.
//
// Goroutines that are ready at the same instant run in any order. So a seed determines the program and the fates of
// messages, but not every step: a program that fails may pass the next time.
//
// A seed that has failed is therefore run again in fixed processes, in which the Go runtime decides the same way each
// time; see runFixed. The flag -sim.attempt makes the decisions others. If one of the first attempts fails, smaller
// programs are run with the same attempt, and the command that repeats it is printed: SEED=n with -sim.attempt=k. It has
// the same trace in nearly all runs, for one build of the test. A difference is left where code looks at the real time:
// a sync.Mutex changes its order if a goroutine has waited for a millisecond.
//
// If no attempt fails, or no fixed process can run, the output says so, and the seed is shrunk and repeated in the
// process of the test. Fixed processes need Linux on amd64 or arm64, the right to trace a process of one's own, a build
// without the race detector, and, for a campaign with a Patch, the go command.
package sim
