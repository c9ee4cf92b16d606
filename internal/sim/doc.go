// Package sim runs random programs in virtual time, judges them by an oracle, and shrinks those that fail. core and the
// adapters have their simulations on it, in their tests.
//
// [Seeds] runs a trial for many seeds, and says how to run one again. A [Campaign] is a trial whose seed draws a [Program]:
// numbers that say what the processes are like, and steps that happen to them. A program that breaks a rule is run again with
// less of it, as often as that still breaks a rule, and what is left is printed.
//
// Goroutines that are ready at the same instant run in any order, so a seed fixes the program and the fates of messages, but
// not every step: a program that fails does so again in nearly every run.
package sim
