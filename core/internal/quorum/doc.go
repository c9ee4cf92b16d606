// Package quorum counts the votes of nodes and judges the outcome of a round. It does no I/O and reads no clock. A
// [Tally] reports whether votes that are still missing could change the outcome of its round, and what the outcome
// is.
package quorum
