package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A digest is what docs/benchmarks.md shows of a section. A section without one is only printed.
type digest struct {
	title   string
	text    func(config) string
	columns []string // those of its tables that are shown, in this order
	without []string // rows with such a cell are only printed
}

// plainly is a text that depends on no config.
func plainly(text string) func(config) string { return func(config) string { return text } }

var digests = []digest{
	{"Uncontended lock and unlock", plainly("Each goroutine locks and unlocks one of 16 keys of its own. A pair is a lock and its unlock."),
		[]string{"goroutines", "peer", "pairs/s", "min–max", "to redsync", "p50", "p99"}, nil},
	{"CPU per pair", plainly("Of the same runs: CPU of each server's process, and of the client's, with 128 goroutines."),
		[]string{"nodes", "peer", "server", "client"}, []string{"16", "1024", "goroutines 1"}},
	{"Distance", plainly("The same through proxies that delay each direction by half of the round trip. One lock takes at least one round trip. With 128 goroutines the proxies compete for the same cores."),
		[]string{"round trip", "nodes", "goroutines", "peer", "pairs/s", "to redsync", "lock p50", "lock p50 in round trips"}, []string{"1ms", "bsm/redislock", "raw go-redis, auto-pipelined"}},
	{"One of 5 nodes hung", func(c config) string {
		return fmt.Sprintf("%d goroutines as above; then one server is stopped (SIGSTOP), so that its connections stay open and nothing is answered. Counting begins %v later and lasts %v. redsync waits for all nodes by default; fail fast is its option not to wait.",
			hungGoroutines, c.hungWarm, c.hungMeasure)
	}, []string{"peer", "healthy pairs/s", "hung pairs/s", "hung to healthy", "p99", "goroutines hung"}, nil},
	{"Held leases", func(c config) string {
		return fmt.Sprintf("Many leases with a TTL of %v are held for %v, in which each is renewed once. CPU is in %% of one core. Only peers that renew.", c.leases.ttl, c.leases.ttl/3)
	}, []string{"nodes", "leases", "peer", "client CPU", "server CPU", "requests/s and node", "heap each", "goroutines", "lost"}, nil},
	{"All nodes stopped for a while", func(c config) string {
		return fmt.Sprintf("Leases with a TTL of %v; all servers are stopped for %v while renewals are under way.", c.outage.ttl, c.outageLasts)
	}, []string{"nodes", "leases", "peer", "lost", "all renewed", "goroutines"}, nil},
	{"Closing with held leases", func(c config) string {
		return fmt.Sprintf("The holder of leases with a TTL of %v is closed. Left taken: keys that are still taken afterwards, node by node.", c.closing.ttl)
	}, []string{"nodes", "leases", "peer", "Close", "left taken"}, nil},
	{"Hand-off to another process", plainly("From the call of the release until a waiter in another process has the key. The waiter has waited for 200 to 400 ms. redsync polls with its default pause, redislock every 100 ms."),
		[]string{"nodes", "peer", "p50", "p99"}, []string{handoffKinds[0].name}},
	{"Many waiting Lockers", func(c config) string {
		return fmt.Sprintf("%d lockers in %d processes take one key, hold it for %v and begin again. To ideal: time per acquisition to the hold. Requests: per acquisition and node. Overtook: acquisitions ahead of an earlier waiter.",
			crowdLockers, throngProcesses, crowdHold)
	}, []string{"nodes", "lockers", "peer", "acquisitions/s", "to ideal", "requests", "hand-off p50", "overtook", "wait p99"}, nil},
	{"Greedy clients", plainly(fmt.Sprintf("The same with %d lockers that hold the key for %v. Jain: fairness of their shares, 1 if all are equal.", greedyLockers, greedyHold)),
		[]string{"nodes", "lockers", "peer", "acquisitions/s", "Jain", "least share", "most", "wait p99", "requests"}, nil},
	{"Hand-off inside a process", plainly(fmt.Sprintf("Two goroutines of one Locker pass a key on, with nodes %v away.", localRoundTrip)),
		[]string{"nodes", "peer", "p50", "p50 in round trips", "requests per node"}, nil},
	{"Idle waiters", plainly(fmt.Sprintf("%d lockers wait for a key that stays held.", idleWaiters)),
		[]string{"nodes", "peer", "requests/s and node", "per waiter"}, nil},
}

// of is the section as the document shows it.
func (d digest) of(s section, c config) section {
	short := section{title: s.title, text: d.text(c), charts: s.charts, notes: s.notes}
	for _, p := range s.parts {
		short.add(p.title, d.only(p.table))
	}
	return short
}

// alike are peers whose rows differ little from another's.
var alike = []string{lockkitNew, "raw go-redis", "raw rueidis, auto-pipelined"}

// only is the table without what is only printed.
func (d digest) only(t *table) *table {
	less := &table{head: d.columns, text: max(0, slices.Index(d.columns, "peer"))}
	for _, row := range t.rows {
		var cells []string
		for _, column := range d.columns {
			cells = append(cells, row[slices.Index(t.head, column)])
		}
		if d.shows(t.head, row) {
			less.add(cells...)
		}
	}
	return less
}

// shows reports whether the document has a row.
func (d digest) shows(head, row []string) bool {
	for i, cell := range row {
		if slices.Contains(alike, cell) || slices.Contains(d.without, cell) || slices.Contains(d.without, head[i]+" "+cell) {
			return false
		}
	}
	return true
}

// A look is a cell of a section's tables, by what stands in other columns of its row.
type look struct {
	section, column string
	row             map[string]string
}

// cell finds what a look is about on n nodes, of a peer; empty if it was not measured.
func cell(sections []section, n int, peer string, l look) string {
	for _, s := range sections {
		if s.title != l.section {
			continue
		}
		for _, p := range s.parts {
			nodes := slices.Index(p.table.head, "nodes")
			if p.title != "" && p.title != plural(n, "node") {
				continue
			}
			for _, row := range p.table.rows {
				is := func(column, value string) bool { return row[slices.Index(p.table.head, column)] == value }
				fits := is("peer", peer) && (nodes < 0 || row[nodes] == strconv.Itoa(n))
				for column, value := range l.row {
					fits = fits && is(column, value)
				}
				if fits {
					return row[slices.Index(p.table.head, l.column)]
				}
			}
		}
	}
	return ""
}

// summary is the table with which the document begins.
func summary(sections []section) *table {
	t := &table{head: []string{"", "1 node", "3 nodes", "5 nodes"}}
	rates := func(goroutines, callers string) {
		at := map[string]string{"goroutines": goroutines}
		row := []string{"locks and unlocks per second, " + callers}
		for _, n := range []int{1, 3, 5} {
			pairs := cell(sections, n, lockkitOpen, look{"Uncontended lock and unlock", "pairs/s", at})
			row = append(row, withRatio(pairs, cell(sections, n, lockkitOpen, look{"Uncontended lock and unlock", "to redsync", at})))
		}
		t.add(row...)
	}
	spans := func(what string, l look) {
		row := []string{what}
		for _, n := range []int{1, 3, 5} {
			ours, theirs := cell(sections, n, lockkitOpen, l), cell(sections, n, baseline, l)
			row = append(row, withRatio(ours, times(span(ours)/span(theirs))))
		}
		t.add(row...)
	}
	rates("1", "1 caller")
	rates("16", "16 callers")
	rates("128", "128 callers")
	rates("1024", "1024 callers")
	spans("lock and unlock, p50, 1 caller", look{"Uncontended lock and unlock", "p50", map[string]string{"goroutines": "1"}})
	spans("CPU of each server per lock and unlock, 128 callers", look{"CPU per pair", "server", map[string]string{"goroutines": "128"}})
	spans("key handed to a waiter in another process, p50", look{"Hand-off to another process", "p50", map[string]string{"waiter": handoffKinds[1].name}})
	spans("longest wait (p99), 16 clients that compete for one key", look{"Greedy clients", "wait p99", map[string]string{"lockers": strconv.Itoa(greedyLockers)}})
	return t
}

// withRatio is a figure and its ratio; a dash if it was not measured.
func withRatio(figure, ratio string) string {
	if figure == "" {
		return "–"
	}
	return figure + ", " + ratio
}

// span is the number of microseconds that a cell says; 0 if it says none.
func span(cell string) float64 {
	number, unit, _ := strings.Cut(cell, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return v * map[string]float64{"µs": 1, "ms": 1e3, "s": float64(time.Second / time.Microsecond)}[unit]
}

// missed is the section of the goals that were not met.
func missed(sections []section) section {
	s := section{title: "Goals"}
	t := &table{head: []string{"missed", "goal", "reached"}}
	all := 0
	for i := range sections {
		for _, g := range sections[i].goals {
			all++
			if verdict := g.verdict(); verdict != "yes" && verdict != "–" {
				t.add(g.what, g.want, g.of(lockkitOpen))
			}
		}
	}
	s.text = fmt.Sprintf("This run met %d of %d goals; `make bench` prints them all. A missed goal fails nothing: figures of a busy machine, or of a short run, vary by a quarter and more.", all-len(t.rows), all)
	s.add("", t)
	return s
}

const method = `## Method

%s
- One machine: clients and servers share its cores, so figures show what work costs. Compare within a table.
- Loops are closed: a goroutine begins a pair when its last one has ended, for at least %d pairs each.
- Peers take turns in short slices. A rate is the median of the rounds, "to redsync" the median of the ratios within a round. The first round is not counted, nor one in which a peer's calls hung for %v.
- All use a TTL of %v, their libraries' defaults, and connections of their own.
- Raw is ` + "`SET NX PX`" + ` and a script that compares and deletes, with auto-pipelining: what a lock costs at least, without renewal, tokens or waiting.
- rueidislock spreads keys over one client, not over nodes: it is in the tables of one node.
- lockkit is opened by ` + "`core.Open`" + `, with the restart guard for 3 and 5 nodes. With given clients (` + "`core.New`" + `) figures are alike; ` + "`make bench`" + ` prints both, and more rows and columns.
`

const benchmarksHead = `# Benchmarks

<!-- Written by make bench. Do not edit. -->

lockkit and its ratio to redsync, on %d cores that clients and servers share. Rates: more than 1× is faster. Times: less than 1× is faster. – is not measured. Words: [glossary](glossary.md).

%s
A lone caller waits longer than with redsync, because a lock also counts a fencing token and checks clocks; many callers are faster, because their requests travel together. Tasks of asynq: [queue](benchmarks/queue.md). Cron ticks: [cron](benchmarks/cron.md). HTTP requests: [http](benchmarks/http.md).
`

// document is docs/benchmarks.md: ratios, charts, tables, goals, method.
func document(r run, cores int, sections []section, charts string) string {
	var b strings.Builder
	fmt.Fprintf(&b, benchmarksHead, cores, summary(sections))
	for _, d := range digests {
		for _, s := range sections {
			if s.title == d.title {
				short := d.of(s, r.config)
				b.WriteString("\n" + short.markdown(charts))
			}
		}
	}
	goals := missed(sections)
	b.WriteString("\n" + goals.markdown(""))
	fmt.Fprintf(&b, "\n"+method, r, waves, patience, ttl)
	return b.String()
}
