//go:build !race

package otellock

const raceEnabled = false
