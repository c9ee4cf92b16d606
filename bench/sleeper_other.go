//go:build !linux

package main

import "time"

type sleeper struct{}

func newSleeper() (*sleeper, error) { return nil, nil }

func (*sleeper) sleep(d time.Duration) { time.Sleep(d) }
func (*sleeper) close()                {}
