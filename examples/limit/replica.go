package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// replica calls the API until it is dismissed, each time under a permit.
func replica(dismissed <-chan struct{}, name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-dismissed
		cancel()
	}()

	locker, err := core.Open(strings.Split(os.Getenv(envNodes), ","), core.TTL(ttl), core.WithClockWindow(ttl/10))
	if err != nil {
		return err
	}
	defer locker.Close(context.WithoutCancel(ctx))

	limit, err := semaphore.New(locker, allowed)
	if err != nil {
		return err
	}
	underPermit := limit.Do
	if os.Getenv(envUnprotected) != "" {
		underPermit = unprotected
	}

	for ctx.Err() == nil {
		err := underPermit(ctx, "api", func(ctx context.Context) error { return call(ctx, name) })
		canGoOn := err == nil || core.ClassOf(err) == core.ClassUnavailable || errors.Is(err, core.ErrLost)
		if !canGoOn && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// unprotected runs fn at once.
func unprotected(ctx context.Context, _ string, fn func(context.Context) error, _ ...core.CallOption) error {
	return fn(ctx)
}

// call calls the API.
func call(ctx context.Context, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv(envAPI), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Caller", name)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("calling the API: %w", err)
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// readAll reads the output of a replica, which has none.
func readAll(stdout io.Reader) { _, _ = io.Copy(io.Discard, stdout) }
