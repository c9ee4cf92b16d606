package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
)

// A stickyWriter returns the first write error for all later writes.
type stickyWriter struct {
	w   io.Writer
	err error
}

func (o *stickyWriter) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}

	n, err := o.w.Write(b)
	o.err = err
	return n, err
}

func asJSON(cmd *cli.Command) bool { return cmd.String("output") == "json" }

// printJSON prints the object to which v points. It makes the strings in it lossless.
func (a *app) printJSON(v any) error {
	makeLossless(reflect.ValueOf(v))

	out := json.NewEncoder(a.stdout)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// makeLossless makes each string in a value lossless: package json writes the same character for all invalid UTF-8.
func makeLossless(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeLossless(v.Elem())
		}
	case reflect.Struct:
		// Unexported fields cannot be set, and package json ignores them.
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				makeLossless(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			makeLossless(v.Index(i))
		}
	case reflect.String:
		v.SetString(lossless(v.String()))
	default: // has no text in it
	}
}

// lossless returns a text from which the bytes of the given text can be restored after JSON: the text itself, or a Go
// string literal.
func lossless(text string) string {
	if !utf8.ValidString(text) || strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }

// A table is printed with aligned columns.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (a *app) printTable(t table) {
	var lines strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		if len(row) > 0 { // a table may have no head
			lines.WriteString(strings.Join(row, "\t") + "\n")
		}
	}

	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, lines.String())
	w.Flush()
}

// formatDuration returns a duration with a precision for people.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute-50*time.Millisecond:
		return d.Round(100 * time.Millisecond).String()

	case d < 48*time.Hour:
		text := d.Round(time.Second).String()
		// Package time writes units that are zero: "2m0s", "1h0m0s".
		if short, ok := strings.CutSuffix(text, "m0s"); ok {
			text = short + "m"
		}
		if short, ok := strings.CutSuffix(text, "h0m"); ok {
			text = short + "h"
		}
		return text
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// quoteIfNeeded returns a text from outside of lockctl. It quotes the text if it would be hard to read or could disturb
// a terminal.
func quoteIfNeeded(text string) string {
	if strings.ContainsFunc(text, invisible) {
		return strconv.QuoteToASCII(text)
	}
	if text == "" || strings.ContainsFunc(text, needsQuotes) {
		return strconv.Quote(text)
	}
	return text
}

// needsQuotes reports whether a character is hard to read outside of quotes, or could disturb a terminal.
func needsQuotes(r rune) bool {
	return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' || r == unicode.ReplacementChar
}

// invisible reports whether a character shows nothing although unicode.IsPrint accepts it.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// orDash is quoteIfNeeded, with a dash for an empty text.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return quoteIfNeeded(text)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// formatTime returns a time with a precision for people.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
