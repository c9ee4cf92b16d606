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

// An output remembers that it could not be written.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.w.Write(b)
	return n, o.err
}

func asJSON(cmd *cli.Command) bool { return cmd.String("output") == "json" }

// json prints an object. v is a pointer to it, and its texts are made exact.
func (a *app) json(v any) error {
	makeExact(reflect.ValueOf(v))
	out := json.NewEncoder(a.stdout)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// makeExact makes each text in a value exact, since package json writes the same character for all that is not UTF-8.
func makeExact(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeExact(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				makeExact(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			makeExact(v.Index(i))
		}
	case reflect.String:
		v.SetString(exact(v.String()))
	}
}

// exact returns a text from which its bytes can be told in JSON: the text itself, or a string literal of Go.
func exact(text string) string {
	if !utf8.ValidString(text) || strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

func (a *app) say(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) }

// A table is printed with its columns aligned.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (a *app) table(t table) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	var lines strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		if len(row) > 0 {
			lines.WriteString(strings.Join(row, "\t") + "\n")
		}
	}
	fmt.Fprint(w, lines.String())
	w.Flush()
}

// brief is a duration as people read it.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + brief(-d)
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

// plain is a text of others as it is, or quoted where it would be hard to read or could disturb a terminal.
func plain(text string) string {
	if strings.ContainsFunc(text, invisible) {
		return strconv.QuoteToASCII(text)
	}
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' || r == unicode.ReplacementChar
	}) {
		return strconv.Quote(text)
	}
	return text
}

// invisible reports whether a character shows nothing, although it counts as one that can be printed.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// optional is plain, with a dash for nothing.
func optional(text string) string {
	if text == "" {
		return "-"
	}
	return plain(text)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// moment is a time as people read it.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
