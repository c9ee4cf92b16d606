package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A process runs a replica, seen from the demo.
type process struct {
	*stage.Child
	killed bool
}

// replicas are the processes of the service, each of which reports to rec.
type replicas struct {
	urls []string // of the nodes
	mode mode
	rec  *record
	all  map[string]*process
}

func newReplicas(urls []string, m mode, rec *record) *replicas {
	return &replicas{urls, m, rec, map[string]*process{}}
}

// start runs this program again, as a replica.
func (rs *replicas) start(who member) error {
	env := []string{envReplica + "=" + who.name, envNodes + "=" + strings.Join(rs.urls, ","), envSkew + "=" + who.ahead.String()}
	if os.Getenv(envProcessSkew) != "" {
		env = append(env, fmt.Sprintf("%s=%d", envProcessSkew, who.ahead))
	}
	for name, on := range map[string]bool{envUnprotected: rs.mode.unprotected, envElector: rs.mode.elector, envChaos: rs.mode.chaos} {
		if on {
			env = append(env, name+"=1")
		}
	}
	child, err := stage.Start(func(stdout io.Reader) {
		lines := json.NewDecoder(stdout)
		var e event
		for lines.Decode(&e) == nil { // until the end, which may cut a line off
			rs.rec.add(e)
			e = event{}
		}
	}, env...)
	if err != nil {
		return err
	}
	rs.all[who.name] = &process{Child: child}
	return nil
}

// ready returns when all replicas are up.
func (rs *replicas) ready(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for name := range rs.all {
		if _, err := rs.rec.kept.Wait(ctx, func(e event) bool { return e.Kind == isReady && e.Replica == name }); err != nil {
			return time.Time{}, fmt.Errorf("waiting for replica %s to start: %w", name, err)
		}
	}
	return time.Now(), nil
}

// kill does not ask (SIGKILL), and returns when the process is gone.
func (rs *replicas) kill(name, when string) error {
	p := rs.all[name]
	p.killed = true
	if err := p.Kill(); err != nil {
		return fmt.Errorf("killing replica %s: %w", name, err)
	}
	rs.rec.add(event{Replica: name, Kind: isKilled, At: time.Now(), Text: when})
	return nil
}

// stop has the process shut down, and returns when it is gone.
func (p *process) stop() error {
	p.Dismiss()
	select {
	case <-p.Gone():
	case <-time.After(10 * time.Second):
		p.Kill()
	}
	if p.killed {
		return nil
	}
	return p.Wait()
}

// stop stops those that are left.
func (rs *replicas) stop() error {
	for _, p := range rs.all {
		p.Dismiss() // all at once
	}
	var errs []error
	for name, p := range rs.all {
		if err := p.stop(); err != nil {
			errs = append(errs, fmt.Errorf("replica %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
