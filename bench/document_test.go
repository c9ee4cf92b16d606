package main

import (
	"strings"
	"testing"
	"time"
)

// The document begins with ratios, and shows the columns and rows of its digests. It ends with the goals that were
// missed and the method.
func TestDocument(t *testing.T) {
	rates := section{title: "Uncontended lock and unlock"}
	table1 := table{head: []string{"goroutines", "peer", "pairs/s", "min–max", "to redsync", "to rueidislock", "p50", "p99"}, text: 1}
	table1.add("1", baseline, "5.6k", "5k–6k", "1.00×", "–", "200 µs", "300 µs")
	table1.add("1", lockkitOpen, "4.1k", "4k–5k", "0.74×", "–", "1.00 ms", "2.00 ms")
	table1.add("1", lockkitNew, "4.2k", "4k–5k", "0.75×", "–", "1.10 ms", "2.00 ms")
	table1.add("16", lockkitOpen, "23k", "20k–24k", "0.64×", "–", "1.00 ms", "2.00 ms")
	rates.add("1 node", &table1, newChart("pairs-1.svg", "Lock and unlock", "pairs"))
	rates.goals = []*goal{
		{what: "a goal", want: "≥ 1×", got: []figure{{lockkitOpen, "0.74×", false}}},
		{what: "another goal", want: "≥ 0.5×", got: []figure{{lockkitOpen, "0.74×", true}}},
	}
	printed := section{title: "Push to all, queue", text: "only printed"}

	got := document(run{config: full, took: time.Minute}, 2, []section{rates, printed}, "benchmarks")
	at := 0
	for _, want := range []string{
		"on 2 cores", "4.1k, 0.74×", "16 callers | 23k, 0.64×", "| –", "p50, 1 caller", "1.00 ms, 5.00×",
		"## Uncontended", "![Lock and unlock](benchmarks/pairs-1.svg)", "### 1 node", "| 1 | redsync", "| 1 | lockkit, Open |", "| 16 | lockkit, Open | 23k |",
		"## Goals", "met 1 of 2 goals", "| a goal | ≥ 1× | 0.74× |", "## Method", "This run: full",
	} {
		i := strings.Index(squeezed(got)[at:], want)
		if i < 0 {
			t.Fatalf("no %q, or not there:\n%s", want, got)
		}
		at += i
	}
	for _, unwanted := range []string{lockkitNew, "only printed", "another goal", "to rueidislock"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("the document has %q", unwanted)
		}
	}
}

// squeezed returns a text without the padding of its tables.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }
