package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A sleeper wakes up in time, where time.Sleep does so at whole milliseconds if the program has nothing else to do.
type sleeper struct {
	fd    int
	timer *os.File
}

func newSleeper() (*sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &sleeper{fd, os.NewFile(uintptr(fd), "timer")}, nil
}

func (s *sleeper) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(s.fd, 0, &at, nil); err != nil {
		time.Sleep(d)
		return
	}
	var expirations [8]byte
	_, _ = s.timer.Read(expirations[:])
}

func (s *sleeper) close() { _ = s.timer.Close() }
