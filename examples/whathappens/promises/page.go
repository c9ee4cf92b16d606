package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A pageRow is a row of the table in docs/what-happens.md.
type pageRow struct {
	what, holder, callers, tests string
}

// readPage returns the rows of the table.
func readPage(path string) ([]pageRow, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rows := parsePage(string(text))
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no table", path)
	}
	return rows, nil
}

func parsePage(text string) (rows []pageRow) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 4 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "what happens" || strings.Trim(cells[0], "-") == "" {
			continue // the head
		}
		rows = append(rows, pageRow{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// cell returns the text of a column.
func (p pageRow) cell(c column) string {
	if c == ofHolder {
		return p.holder
	}
	return p.callers
}

// figures are the numbers of seconds that the document has where a promise has #.
type figures []time.Duration

// blank is where a passage has a number: a # that is a word.
const blank = "# "

// find returns the passage of a cell that a promise quotes, with the figures that the document has there. The error says
// that the document no longer has the passage.
func find(cell, quote string) (passage string, f figures, err error) {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(quote), blank, `([0-9]+(?:\.[0-9]+)?) `)
	found := regexp.MustCompile(pattern).FindStringSubmatch(cell)
	if found == nil {
		return "", nil, fmt.Errorf("the document does not say %q", quote)
	}
	for _, text := range found[1:] {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", nil, err
		}
		f = append(f, time.Duration(seconds*float64(time.Second)))
	}
	return found[0], f, nil
}

// sentences splits a cell. A cell that only has a dash has none.
func sentences(cell string) []string {
	var all []string
	for _, s := range strings.SplitAfter(cell, ". ") {
		if s = strings.TrimSpace(s); s != "" && s != "–" {
			all = append(all, s)
		}
	}
	return all
}

var namedTest = regexp.MustCompile("`Test[A-Za-z0-9_/…-]+`|`make [a-z-]+`")

// A plan is what is known of each row of the document: how to show it, or which tests do.
type plan struct {
	pageRow
	row *row // nil if tests show it
}

// match finds the row for each row of the document. The error names each row that has neither promises to judge nor a test,
// each sentence that is neither judged nor left to a test, and each promise that the document does not make.
func match(page []pageRow, rows []*row) ([]plan, error) {
	var plans []plan
	var wrong []error
	matched := map[*row]bool{}
	for _, p := range page {
		found := plan{pageRow: p}
		for _, r := range rows {
			if strings.HasPrefix(p.what, r.what) {
				found.row = r
				matched[r] = true
				wrong = append(wrong, r.fits(p)...)
			}
		}
		if found.row == nil && !namedTest.MatchString(p.tests) {
			wrong = append(wrong, fmt.Errorf("%s: no promise of this row is judged, and it names no test", p.what))
		}
		plans = append(plans, found)
	}
	for _, r := range rows {
		if !matched[r] {
			wrong = append(wrong, fmt.Errorf("the document has no row %q", r.what))
		}
	}
	return plans, errors.Join(wrong...)
}

// fits returns where a row and what the document says of it differ.
func (r *row) fits(p pageRow) (wrong []error) {
	passages := map[column][]string{}
	for _, promise := range r.promises {
		passage, _, err := find(p.cell(promise.column), promise.says)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", p.what, err))
		}
		passages[promise.column] = append(passages[promise.column], passage)
	}
	for _, l := range r.left {
		if !strings.Contains(p.cell(l.column), l.says) {
			wrong = append(wrong, fmt.Errorf("%s: the document does not say %q", p.what, l.says))
		}
		passages[l.column] = append(passages[l.column], l.says)
	}
	for _, c := range []column{ofHolder, ofCallers} {
		for _, sentence := range sentences(p.cell(c)) {
			judged := slices.ContainsFunc(passages[c], func(passage string) bool {
				return passage != "" && (strings.Contains(sentence, passage) || strings.Contains(passage, sentence))
			})
			if !judged {
				wrong = append(wrong, fmt.Errorf("%s: nothing judges %q", p.what, sentence))
			}
		}
	}
	return wrong
}
