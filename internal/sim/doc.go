// Package sim runs random programs in virtual time, checks each run against rules (the oracle), and shrinks programs
// that break one. The simulations of core and of the adapters, which are in their tests, use it.
//
// [Seeds] runs a trial for many seeds, and says how to run one again. In a [Campaign], each seed draws a [Program]:
// numbers that describe the processes, and steps that happen to them. If a program breaks a rule, smaller versions of
// it are run, as long as they still break a rule; the smallest is printed.
//
// Goroutines that are ready at the same instant run in any order. So a seed determines the program and the fates of
// messages, but not every step: a program that fails does so again in most runs, but not in all.
package sim
