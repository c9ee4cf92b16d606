//go:build race

package otellock

const raceEnabled = true
