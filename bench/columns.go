package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// A column of a table about throngs.
type column struct {
	head string
	cell func(throng, passage) string
}

var (
	columnRate      = column{"acquisitions/s", func(_ throng, p passage) string { return rate(1 / p.each.Seconds()) }}
	columnToIdeal   = column{"to ideal", func(t throng, p passage) string { return times(to(p.each, t.hold)) }}
	columnJain      = column{"Jain", func(_ throng, p passage) string { return number(jain(p.shares)) }}
	columnLeast     = column{"least share", func(_ throng, p passage) string { return strconv.Itoa(slices.Min(p.shares)) }}
	columnMost      = column{"most", func(_ throng, p passage) string { return strconv.Itoa(slices.Max(p.shares)) }}
	columnRequests  = column{"requests", func(_ throng, p passage) string { return number(p.requests) }}
	columnPublished = column{"published", func(_ throng, p passage) string { return number(p.published) }}
	columnOvertook  = column{"overtook", func(_ throng, p passage) string { return p.overtaken() }}
	columnOne       = column{"one wait", func(_ throng, p passage) string { return strconv.Itoa(p.most) }}
	columnHandoff50 = column{"hand-off p50", func(_ throng, p passage) string { return short(p.handoffs.quantile(0.5)) }}
	columnHandoff99 = column{"hand-off p99", func(_ throng, p passage) string { return short(p.handoffs.quantile(0.99)) }}
	columnWait50    = column{"wait p50", func(_ throng, p passage) string { return short(p.waited.quantile(0.5)) }}
	columnWait99    = column{"wait p99", func(_ throng, p passage) string { return short(p.waited.quantile(0.99)) }}
	columnWaitIdeal = column{"p99 to ideal", func(t throng, p passage) string { return times(to(p.waited.quantile(0.99), t.ideal())) }}
	columnStood     = column{"stood still", func(_ throng, p passage) string { return short(p.stood) }}
)

// A throngTable has a row for each throng that passed.
type throngTable struct {
	table
	columns []column
}

func newThrongTable(columns ...column) *throngTable {
	t := &throngTable{table{head: []string{"nodes", "lockers", "peer"}, text: 2}, columns}
	for _, c := range columns {
		t.head = append(t.head, c.head)
	}
	return t
}

// pass has a throng of each peer pass on n nodes, and adds a row for it.
func (t *throngTable) pass(ctx context.Context, s *section, n int, peers []peer, crowd throng, passed func(peer, passage)) error {
	return eachWaiting(s, n, peers, func(p peer, on *nodes) error {
		got, err := crowd.run(ctx, p, on)
		if err != nil {
			return err
		}
		row := []string{strconv.Itoa(n), strconv.Itoa(crowd.lockers), p.name}
		for _, c := range t.columns {
			row = append(row, c.cell(crowd, got))
		}
		t.add(row...)
		s.noteSome(got.failures, "%s, %d lockers, %s: calls failed", plural(n, "node"), crowd.lockers, p.name)
		if passed != nil {
			passed(p, got)
		}
		return nil
	})
}

// overtaken is how many of the acquisitions were past an earlier one.
func (p passage) overtaken() string {
	if math.IsNaN(p.overtook) {
		return "–"
	}
	return number(100*p.overtook) + " %"
}

// ideal is what a wait takes in a queue without cost.
func (t throng) ideal() time.Duration { return time.Duration(t.lockers) * t.hold }

// less says how long t is measured if that is less than a goal's, and is empty otherwise.
func (t throng) less(than time.Duration) string {
	if t.measure >= than {
		return ""
	}
	return fmt.Sprint(t.measure)
}

// throngText says what the columns are.
const throngText = `To ideal: time per acquisition to the hold. Requests are those of clients (scripts, the peer's other
command, subscriptions and pings), published what scripts and clients published, per acquisition and node, by INFO
commandstats. Hand-off: from the beginning of a release to the next grant, where that is to somebody who had waited for it.
Overtook: acquisitions past somebody who had begun to wait earlier; one wait: how often that befell the same one. Jain:
fairness of the lockers' shares, 1 if all are the same, 1/lockers if one has all. Waits that were not over at the end count
with what they took until then. ` + stoodText
