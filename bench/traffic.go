package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// A traffic is what a server was asked to do.
type traffic struct {
	requests  int // those of clients
	published int // messages to subscribers, most of them by scripts
}

// Commands of clients, beside that of a peer. Those that a script calls are not requests.
var requestCommands = []string{
	"evalsha", "eval", "fcall", "ping",
	"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
}

// traffic returns that of all servers since they started.
func (ns *nodes) traffic(ctx context.Context, command string) (traffic, error) {
	var sum traffic
	for i, admin := range ns.admins {
		stats, err := admin.Info(ctx, "commandstats").Result()
		if err != nil {
			return traffic{}, fmt.Errorf("node %d: %w", i, err)
		}
		t := readTraffic(stats, command)
		sum.requests += t.requests
		sum.published += t.published
	}
	return sum, nil
}

func readTraffic(stats, command string) (t traffic) {
	for _, name := range append([]string{command}, requestCommands...) {
		t.requests += calls(stats, name)
	}
	t.published = calls(stats, "publish") + calls(stats, "spublish")
	return t
}

// calls is how often a command was called.
func calls(stats, name string) int {
	for part := range strings.SplitSeq(field(stats, "cmdstat_"+name), ",") {
		if n, ok := strings.CutPrefix(part, "calls="); ok {
			count, _ := strconv.Atoi(n)
			return count
		}
	}
	return 0
}

// since is the traffic after an earlier one.
func (t traffic) since(before traffic) traffic {
	return traffic{t.requests - before.requests, t.published - before.published}
}
