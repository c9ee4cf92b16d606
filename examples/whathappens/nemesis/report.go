package nemesis

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// save writes events to a file, one a line, and returns its name.
func save(events []event) (name string, err error) {
	f, err := os.CreateTemp("", "nemesis-*.jsonl")
	if err != nil {
		return "", err
	}

	out := json.NewEncoder(f)

	for _, e := range events {
		err = errors.Join(err, out.Encode(e))
	}

	return f.Name(), errors.Join(err, f.Close())
}

// outcomes counts, for each workload, how calls ended.
type outcomes map[string]map[string]int

func (o outcomes) add(work, outcome string) {
	if o[work] == nil {
		o[work] = map[string]int{}
	}

	o[work][outcome]++
}

// counts has the counts of a part.
type counts struct {
	faults   map[string]int // by name
	struck   int
	failed   int // faults that servers refused
	grants   int
	lost     int
	writes   int
	refused  int
	outcomes outcomes
}

func (r result) counts() counts {
	c := counts{faults: map[string]int{}, outcomes: outcomes{}}

	for _, e := range r.events {
		switch e.Kind {
		case isStruck:
			c.struck++
			c.faults[e.Work]++
			if e.Err != "" {
				c.failed++
			}
		case isGranted:
			c.grants++
			c.outcomes.add(e.Work, "granted")
		case isLost:
			c.lost++
			c.outcomes.add(e.Work, "lost")
		case isFailed:
			c.outcomes.add(e.Work, e.Err)
		case isDone:
			c.outcomes.add(e.Work, "recorded")
		case isRevoked:
			c.outcomes.add(e.Work, "revoked")
		case isStarted:
			c.outcomes.add(e.Work, "ticks started")
		case isReleased:
			if e.Err != "" {
				c.outcomes.add(e.Work, "release: "+e.Err)
			}
		case isWrote:
			c.writes++
			if e.Err != "" {
				c.refused++
			}
		default: // judged, or of no interest here
		}
	}

	return c
}

// list writes counts as "3 a, 2 b", by name.
func list(of map[string]int) string {
	var all []string

	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[name], name))
	}

	return strings.Join(all, ", ")
}

// print prints the result of a part.
func (r result) print(out io.Writer) {
	c := r.counts()
	fmt.Fprintf(out, "%d faults: %s\n", c.struck, list(c.faults))
	if c.failed > 0 {
		fmt.Fprintf(out, "%d of them were refused by servers\n", c.failed)
		for _, e := range r.events {
			if e.Kind == isStruck && e.Err != "" {
				fmt.Fprintf(out, "  %s%s: %s\n", e.Work, e.Text, e.Err)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(c.outcomes)) {
		fmt.Fprintf(out, "  %-12s %s\n", name, list(c.outcomes[name]))
	}

	fmt.Fprintf(out, "%d grants, %d lost; the referee judged %d writes and refused %d\n", c.grants, c.lost, c.writes, c.refused)
	fmt.Fprint(out, r.checked())
	if len(r.violations) == 0 {
		fmt.Fprintf(out, "no violation\n\n")
		return
	}

	fmt.Fprintf(out, "VIOLATIONS: %d: %s\n", len(r.violations), list(r.kinds()))

	shown := map[string]int{}
	for _, v := range r.violations {
		shown[kindOf(v)]++
		if shown[kindOf(v)] <= mostShown {
			fmt.Fprintf(out, "  %s\n", v)
		}
	}

	fmt.Fprintf(out, "the events are in %s\n\n", r.saved)
}

// mostShown is the number of violations of a kind that are printed.
const mostShown = 4

// checked returns the counts of the checker of histories, and the keys of unknown verdict.
func (r result) checked() string {
	var kept []string

	for line := range strings.Lines(r.summary) {
		if strings.HasPrefix(line, "keys") || strings.Contains(line, "unknown") {
			kept = append(kept, "history: "+line)
		}
	}

	return strings.Join(kept, "")
}

func (r result) kinds() map[string]int {
	kinds := map[string]int{}

	for _, v := range r.violations {
		kinds[kindOf(v)]++
	}

	return kinds
}

// report writes the documents, and returns an error if anything was violated.
func report(o Options, results []result) error {
	dir := o.Docs
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "nemesis-*"); err != nil {
			return err
		}
	}

	proof := filepath.Join(dir, "proof")
	err := os.MkdirAll(proof, 0o755)
	violations := 0

	for _, r := range results {
		violations += len(r.violations)
		name := filepath.Join(proof, fmt.Sprintf("nemesis-%d.svg", r.number))
		err = errors.Join(err, os.WriteFile(name, []byte(r.picture()), 0o644))
	}

	err = errors.Join(err, os.WriteFile(filepath.Join(proof, "nemesis.md"), []byte(document(o, results)), 0o644))
	if o.Docs != "" {
		err = errors.Join(err, fillIn(filepath.Join(o.Docs, "proof.md"), table(o, results)+wholeReport))
	}

	fmt.Fprintf(o.Out, "%s\nthe report and the pictures are in %s\n", table(o, results), proof)
	if violations > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations, with seed %d", violations, o.Seed))
	}

	return err
}

// wholeReport stands below the table in proof.md.
const wholeReport = "\nThe [whole report](proof/nemesis.md) has the counts of each part, and a picture of it.\n"

// document is the whole report.
func document(o Options, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Nemesis: the documented run\n\nWritten by `%s`. [What this is](../proof.md).\n\n%s\n", o.command(), table(o, results))

	for _, r := range results {
		fmt.Fprintf(&b, "## Part %s\n\n![who held what, and the faults](nemesis-%d.svg)\n\n```\n", r.part, r.number)
		r.print(&b)
		fmt.Fprint(&b, "```\n\n")
	}

	return strings.TrimRight(b.String(), "\n") + "\n"
}

// command repeats the run.
func (o Options) command() string {
	text := fmt.Sprintf("make nemesis DURATION=%s SEED=%d", brief(o.Length), o.Seed)
	if o.Only != 0 {
		text += fmt.Sprintf(" PART=%d", o.Only)
	}
	if o.Break != "" {
		text += " BREAK=" + o.Break
	}
	if o.Lock != defaultLock {
		text += " LOCK=" + o.Lock
	}
	if o.Docs != "" {
		text += " DOCS=" + filepath.ToSlash(o.Docs)
	}

	return text
}

// brief writes a duration without parts that are 0.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	return strings.TrimSuffix(text, "0m")
}

// table has a row for each part.
func table(o Options, results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`, %s, with leases of %v:\n\n", o.command(), o.Lock, ttl)
	b.WriteString("| servers | persistence | guard | time | faults | grants | lost | writes | refused as stale | violations |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	total := counts{}
	var took time.Duration
	violations := 0

	for _, r := range results {
		c := r.counts()
		guard := "off"
		if r.guard {
			guard = "on"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %d | %d | %d | %d | %d | %d |\n", r.nodes, r.persistence, guard,
			r.took.Round(time.Second), c.struck, c.grants, c.lost, c.writes, c.refused, len(r.violations))
		took += r.took
		total.struck, total.grants, total.lost = total.struck+c.struck, total.grants+c.grants, total.lost+c.lost
		total.writes, total.refused = total.writes+c.writes, total.refused+c.refused
		violations += len(r.violations)
	}

	fmt.Fprintf(&b, "| **all** | | | %s | %d | %d | %d | %d | %d | **%d** |\n",
		took.Round(time.Second), total.struck, total.grants, total.lost, total.writes, total.refused, violations)
	return b.String()
}

// The table in proof.md stands between these lines.
const (
	tableBegins = "<!-- nemesis: written by make nemesis DOCS=docs -->\n"
	tableEnds   = "<!-- nemesis: end -->\n"
)

// fillIn puts a table into a document.
func fillIn(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: it must be between %q and %q", path, tableBegins, tableEnds)
	}

	return os.WriteFile(path, []byte(before+tableBegins+table+tableEnds+after), 0o644)
}
