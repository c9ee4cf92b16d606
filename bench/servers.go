package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// nodes are redis-server processes of this run, and where clients reach them.
type nodes struct {
	servers []*testutil.Server
	admins  []*redis.Client
	slow    []*slowLink // nil where clients reach servers directly
}

// startNodes starts n servers, with the given round trip to each if it is not 0.
func startNodes(n int, roundTrip time.Duration) (*nodes, error) {
	ns := &nodes{}
	for range n {
		s, err := testutil.StartServer("")
		if err != nil {
			return nil, errors.Join(err, ns.close())
		}
		ns.servers = append(ns.servers, s)
		ns.admins = append(ns.admins, s.ClientWith(nil)) // closed by s
		if roundTrip > 0 {
			link, err := startSlowLink(s.Addr(), roundTrip/2)
			if err != nil {
				return nil, errors.Join(err, ns.close())
			}
			ns.slow = append(ns.slow, link)
		}
	}
	return ns, nil
}

func (ns *nodes) close() error {
	var errs []error
	for _, link := range ns.slow {
		errs = append(errs, link.close())
	}
	for _, s := range ns.servers {
		s.Close()
	}
	return errors.Join(errs...)
}

// each does something with each server.
func (ns *nodes) each(do func(*testutil.Server) error) error {
	var errs []error
	for _, s := range ns.servers {
		errs = append(errs, do(s))
	}
	return errors.Join(errs...)
}

// proxyGoroutines is how many goroutines pass things on.
func (ns *nodes) proxyGoroutines() int {
	sum := 0
	for _, link := range ns.slow {
		sum += int(link.running.Load())
	}
	return sum
}

// addrs are those for clients.
func (ns *nodes) addrs() []string {
	var addrs []string
	for i, s := range ns.servers {
		if ns.slow != nil {
			addrs = append(addrs, ns.slow[i].addr())
		} else {
			addrs = append(addrs, s.Addr())
		}
	}
	return addrs
}

// version is that of the servers.
func (ns *nodes) version(ctx context.Context) (string, error) {
	info, err := ns.admins[0].Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return field(info, "redis_version"), nil
}

// A serverUse is what one server has spent.
type serverUse struct {
	requests int           // scripts, and the peer's other command
	commands time.Duration // in them, by INFO commandstats
	process  time.Duration // CPU of the whole process, that of connections included
}

// use returns what the servers have spent since they started on scripts and on command.
func (ns *nodes) use(ctx context.Context, command string) ([]serverUse, error) {
	uses := make([]serverUse, len(ns.admins))
	for i, admin := range ns.admins {
		stats, err := admin.Info(ctx, "commandstats").Result()
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		cpu, err := admin.Info(ctx, "cpu").Result()
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		uses[i] = readUse(stats, cpu, command)
	}
	return uses, nil
}

func readUse(stats, cpu, command string) serverUse {
	var u serverUse
	// What a script calls is in its time, and is counted again under its own name.
	for _, name := range slices.Compact([]string{"evalsha", "eval", command}) {
		for part := range strings.SplitSeq(field(stats, "cmdstat_"+name), ",") {
			key, value, _ := strings.Cut(part, "=")
			n, _ := strconv.Atoi(value) // 0 where there was no such command
			switch key {
			case "calls":
				u.requests += n
			case "usec":
				u.commands += time.Duration(n) * time.Microsecond
			}
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(field(cpu, name), 64)
		u.process += time.Duration(seconds * float64(time.Second))
	}
	return u
}

func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// spent is what was spent on average per node since before.
func spent(before, after []serverUse) serverUse {
	var sum serverUse
	for i := range after {
		sum.requests += after[i].requests - before[i].requests
		sum.commands += after[i].commands - before[i].commands
		sum.process += after[i].process - before[i].process
	}
	n := max(1, len(after)) // tests do without servers
	return serverUse{sum.requests / n, sum.commands / time.Duration(n), sum.process / time.Duration(n)}
}
