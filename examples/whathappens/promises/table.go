package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// A result is what became of a promise in a scene.
type result struct {
	what    string // the row of the document
	says    string // the passage
	column  column
	always  bool // one of the referee's
	text    string
	verdict verdict
}

func (r result) brief() string {
	if r.always {
		return fmt.Sprintf("always: %s", r.text)
	}
	return fmt.Sprintf("%s | %s: %s: %s", plain(r.what), r.column, r.says, r.text)
}

// judge returns a result for each promise of a scene's rows, by the figures of the document, and one of the referee.
func (s *scene) judge(of seen, page []pageRow, r referee) (results []result) {
	late := of.late()
	for _, row := range s.rows {
		for _, p := range row.promises {
			result := result{what: row.what, says: p.says, column: p.column}
			said, f, err := quoted(page, row, p)
			if err != nil {
				result.text, result.verdict = err.Error(), broken
				results = append(results, result)
				continue
			}
			found := p.judge(of, f)
			result.says, result.text, result.verdict = said, found.text, found.on(late)
			if result.verdict == notJudged {
				result.text += fmt.Sprintf(" (timers late by %d ms)", late.Milliseconds())
			}
			results = append(results, result)
		}
	}
	always := result{always: true, text: "one holder at a time, tokens grow, no tick starts too often", verdict: kept}
	if found := r.violations(of.events); len(found) > 0 {
		always.text, always.verdict = strings.Join(found[:min(len(found), 5)], "; "), broken
	}
	return append(results, always)
}

// quoted returns the passage of a promise in the document, and its figures.
func quoted(page []pageRow, r *row, p promise) (string, figures, error) {
	for _, of := range page {
		if strings.HasPrefix(of.what, r.what) {
			return find(of.cell(p.column), p.says)
		}
	}
	return "", nil, fmt.Errorf("the document has no row %q", r.what)
}

// distrust makes results not judged, for a reason.
func distrust(results []result, why string) {
	for i := range results {
		if results[i].verdict != kept || !results[i].always {
			results[i].verdict, results[i].text = notJudged, results[i].text+" ("+why+")"
		}
	}
}

// A table has what became of each row of the document.
type table struct {
	plans   []plan
	page    []pageRow
	results map[string]*count // by row and passage
	always  count
}

// A count is how often a promise was kept, and so on.
type count struct {
	kept, broken, notJudged int
	last                    string // what was seen; of a broken promise, when it was first broken
}

func newTable(plans []plan) *table {
	t := &table{plans: plans, results: map[string]*count{}}
	for _, p := range plans {
		t.page = append(t.page, p.pageRow)
	}
	return t
}

func (t *table) add(results []result) {
	for _, r := range results {
		c := &t.always
		if !r.always {
			key := r.what + r.column.String() + r.says
			if t.results[key] == nil {
				t.results[key] = &count{}
			}
			c = t.results[key]
		}
		c.add(r)
	}
}

func (c *count) add(r result) {
	if c.broken == 0 {
		c.last = r.text
	}
	switch r.verdict {
	case kept:
		c.kept++
	case broken:
		c.broken++
	case notJudged:
		c.notJudged++
	}
}

// verdict of all times that a promise was judged.
func (c *count) verdict() string {
	var all []string
	if c.broken > 0 {
		all = append(all, fmt.Sprintf("%s %d×", broken, c.broken))
	}
	if c.kept > 0 {
		all = append(all, fmt.Sprintf("%s %d×", kept, c.kept))
	}
	if c.notJudged > 0 {
		all = append(all, fmt.Sprintf("%s %d× (too slow a machine)", notJudged, c.notJudged))
	}
	if len(all) == 0 {
		return "not played"
	}
	return strings.Join(all, ", ")
}

// print prints all rows of the document, as a table in Markdown.
func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "\n| what happens | promise | seen | verdict |\n|---|---|---|---|\n")
	fmt.Fprintf(out, "| whatever happens | one holder at a time, tokens grow, no tick starts too often | %s | %s |\n", t.always.last, t.always.verdict())
	for _, p := range t.plans {
		if p.row == nil {
			fmt.Fprintf(out, "| %s | – | – | not for three servers: %s |\n", p.what, p.tests)
			continue
		}
		for _, promise := range p.row.promises {
			says, c := t.of(p, promise)
			fmt.Fprintf(out, "| %s | %s: %s | %s | %s |\n", p.what, promise.column, says, c.last, c.verdict())
		}
	}
	rows, promises, total := t.sums()
	fmt.Fprintf(out, "\n%d of %d rows and %d promises were judged, %d times: %d kept, %d broken, %d not judged\n", rows, len(t.plans), promises, total.kept+total.broken, total.kept, total.broken, total.notJudged)
}

func (t *table) of(p plan, promise promise) (says string, c *count) {
	says, _, err := find(p.cell(promise.column), promise.says)
	if err != nil {
		says = promise.says
	}
	if c = t.results[p.row.what+promise.column.String()+says]; c == nil {
		c = &count{}
	}
	return says, c
}

// sums returns how many rows and promises were judged, and how often.
func (t *table) sums() (rows, promises int, total count) {
	total = t.always
	for _, p := range t.plans {
		if p.row == nil {
			continue
		}
		before := promises
		for _, promise := range p.row.promises {
			_, c := t.of(p, promise)
			total.kept, total.broken, total.notJudged = total.kept+c.kept, total.broken+c.broken, total.notJudged+c.notJudged
			if c.kept+c.broken > 0 {
				promises++
			}
		}
		if promises > before {
			rows++
		}
	}
	return rows, promises, total
}

// verdict is an error if a promise was broken, or none was judged.
func (t *table) verdict() error {
	_, promises, total := t.sums()
	switch {
	case total.broken > 0:
		return fmt.Errorf("%d times a promise was broken", total.broken)
	case promises == 0:
		return errors.New("no promise was judged: there was too little time, or the machine is too slow")
	}
	return nil
}

// plain is the text of a cell without its marks.
func plain(cell string) string {
	return strings.NewReplacer("**", "", "`", "").Replace(cell)
}

var (
	ranges = regexp.MustCompile(`[0-9.]+ to 0\.5 s`)
	times  = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? s\b`)
)

func readRole(text string) (r role, err error) {
	err = json.Unmarshal([]byte(text), &r)
	return r, err
}
