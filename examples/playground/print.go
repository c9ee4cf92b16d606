package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
)

// printTimeline prints what happens, one line each, until ctx ends; of the grants only those of the key that all want.
func (p *playground) printTimeline(ctx context.Context, out io.Writer) {
	began := p.began
	for n := 0; ctx.Err() == nil; {
		events, next, more := p.board.since(n)
		for _, e := range events {
			if line := e.line(); line != "" {
				fmt.Fprintf(out, "%6.2fs  %s\n", instant(e.At).Sub(began).Seconds(), line)
			}
		}
		n = next
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
}

// line is the event for people: "" for those of which there are too many.
func (e Event) line() string {
	who := cmp.Or(e.Replica, "all")
	if e.Node != nil {
		who = fmt.Sprintf("node %d", *e.Node)
		if e.Replica != "" {
			who += " from " + e.Replica
		}
	}
	text := e.Text
	switch e.Kind {
	case isGrant:
		if e.Key != hot {
			return ""
		}
		text = fmt.Sprintf("token %d", e.Token)
	case isRefused:
		if strings.HasPrefix(e.Key, "counter ") {
			return ""
		}
	case isWrite:
		if e.Text == "read" || e.Text == "accepted" {
			return ""
		}
	case isTask:
		if e.Text != "duplicate" {
			return ""
		}
	case isSlow, isSkewed:
		text = fmt.Sprintf("by %v ms", e.Ms)
	case isVerdict:
		text = "VIOLATION: " + e.Text
	case isRenew, isEnd, isWait, isUpdate, isTick, isDeposed:
		return ""
	}
	return strings.TrimRight(fmt.Sprintf("%-16s %-12s %-20s %s", who, strings.TrimPrefix(e.Kind, "node_"), e.lock(), text), " ")
}

// report is how everything came out.
func (s State) report() string {
	c := s.Counters
	return fmt.Sprintf(`
leases granted        %6d   of these lost %d
runs of the job       %6d   in %d seconds
tasks completed       %6d   of %d; twice %d; again, when nodes had forgotten it, %d; duplicates not run %d
updates under a lock  %6d   of these lost %d; without a lock lost %d
stale writes refused  %6d   accepted %d
wait for a lock       %6.0f ms at the median, p99 %.0f ms

verdict: %s
`, c.Grants, c.Losses, c.Runs, c.Ticks, c.Completed, c.Tasks, c.Again, c.Forgotten, c.Duplicates, c.Updates, c.LostWith, c.LostWithout,
		c.StaleRefused, c.StaleAccepted, s.Wait.P50, s.Wait.P99, s.Verdict.Text)
}
