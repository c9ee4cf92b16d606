package main

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// A table is Markdown that can be read as it is.
type table struct {
	head []string
	text int // the column that is not of numbers
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(row []string, filler string) {
		for i, cell := range row {
			fill := strings.Repeat(filler, widths[i]-utf8.RuneCountInString(cell))
			if i == t.text {
				b.WriteString("| " + cell + fill + " ")
			} else {
				b.WriteString("| " + fill + cell + " ")
			}
		}
		b.WriteString("|\n")
	}
	line(t.head, " ")
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = ":"
		if i == t.text {
			rule[i] = "-"
		}
	}
	line(rule, "-")
	for _, row := range t.rows {
		line(row, " ")
	}
	return b.String()
}

// rate is a number per second, such as "123k".
func rate(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v >= 99.5e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func spread(low, high float64) string { return rate(low) + "–" + rate(high) }

// times is a ratio, such as "1.24×".
func times(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f×", v)
}

// number has two decimals.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// short is a duration with three digits, "–" if it is 0.
func short(d time.Duration) string {
	unit, name := time.Microsecond, "µs"
	switch {
	case d == 0:
		return "–"
	case d >= time.Second:
		unit, name = time.Second, "s"
	case d >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	}
	v := float64(d) / float64(unit)
	digits := 0
	switch {
	case v < 9.995:
		digits = 2
	case v < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, v, name)
}
