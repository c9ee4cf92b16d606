package freeport

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"testing"
)

// If another process takes a port first, Try tries another port.
func TestTry(t *testing.T) {
	t.Parallel()
	var seen []string
	err := Try(func(addr string) error {
		seen = append(seen, addr)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		if len(seen) < 3 {
			return errors.New("taken")
		}
		return nil
	})
	if err != nil || len(seen) != 3 {
		t.Errorf("%v after %q", err, seen)
	}
}

func TestTryEnds(t *testing.T) {
	t.Parallel()
	broken, calls := errors.New("broken"), 0
	err := Try(func(string) error {
		calls++
		return broken
	})
	if !errors.Is(err, broken) || calls != maxTries {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// A server whose process ends before it answers gets another port.
func TestStart(t *testing.T) {
	t.Parallel()
	starts := 0
	command := func(string) *exec.Cmd {
		starts++
		if starts < 3 {
			return exec.Command("false")
		}
		return exec.Command("sleep", "60")
	}
	p, err := Start(t.Context(), command, func(string) bool { return starts == 3 })
	if err != nil || starts != 3 {
		t.Fatalf("%v after %d starts", err, starts)
	}
	p.Stop()

	if _, err := Start(t.Context(), func(string) *exec.Cmd { return exec.Command("false") }, func(string) bool { return false }); err == nil {
		t.Error("a process that only ends is taken for a server")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, func(string) *exec.Cmd { return exec.Command("sleep", "60") }, func(string) bool { return false })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error after the end of the context is %v", err)
	}
}
