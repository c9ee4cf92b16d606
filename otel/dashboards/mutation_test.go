package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// Mutations of the alert rules. alerts_test.yaml must notice each of them.

// A mutant is a file of rules with one change. about has the names of the rules that the change affects.
type mutant struct {
	about       []string
	what, rules string
}

// equivalent has the changes after which each alert fires as before, by the reason.
var equivalent = map[string][]string{
	"none is negative, and the rule asks only whether the sum is above 0: it is if one of them is": {
		"LockkitHolderUnknown: max, not sum (1)", "LockkitHolderUnknown: max, not sum (3)", "LockkitHolderUnknown: sum, not max (1)",
		"LockkitOverloaded: max, not sum (1)",
		"LockkitStuckHolder: max, not sum (2)",
	},
	"the rule asks only whether there is one": {
		"LockkitHeldTooLong: max, not sum (1)", "LockkitHeldTooLong: min, not sum (1)",
		"LockkitLedgerFailing: max, not sum (1)", "LockkitLedgerFailing: min, not sum (1)",
		"LockkitLedgerFailing: max, not sum (2)", "LockkitLedgerFailing: min, not sum (2)",
		"LockkitLost: max, not sum (1)", "LockkitLost: min, not sum (1)",
		"LockkitStuckHolder: max, not sum (3)", "LockkitStuckHolder: min, not sum (3)",
		"LockkitTaskAtRisk: max, not sum (1)", "LockkitTaskAtRisk: min, not sum (1)",
		"LockkitTaskDropped: max, not sum (1)", "LockkitTaskDropped: min, not sum (1)",
		"LockkitTickMissed: max, not sum (1)", "LockkitTickMissed: min, not sum (1)",
	},
	"all are 0 if the sum is": {"LockkitClockOff: max, not sum (1)"},
	"the one is above 0 if the other is": {
		"LockkitClockOff: rate, not increase (1)",
		"LockkitOverloaded: increase, not rate (1)",
		"LockkitHolderUnknown: rate, not increase (1)",
		"LockkitNodeNotVoting: rate, not increase (1)",
		"lockkit_complete_failures:new10m: rate, not increase (1)",
		"lockkit_events:new10m: rate, not increase (1)",
		"lockkit_losses:new10m: rate, not increase (1)",
		"lockkit_refusals:new10m: rate, not increase (1)",
	},
	"the rule asks only whether there was a value": {
		"lockkit_acquires:new5m: count_over_time, not last_over_time (1)",
		"lockkit_complete_failures:new10m: count_over_time, not last_over_time (1)",
		"lockkit_events:new10m: count_over_time, not last_over_time (1)",
		"lockkit_losses:new10m: count_over_time, not last_over_time (1)",
		"lockkit_refusals:new10m: count_over_time, not last_over_time (1)",
	},
	"a quantile does not depend on the scale": {"LockkitSlowWait: increase, not rate (1)"},
}

// A change that affects when or whether an alert fires fails a test of the rules. Each change costs 0.2 s of CPU: `make
// test` tries one in 32, and `make dashboards` tries all of them.
func TestRulesSurviveNoMutation(t *testing.T) {
	race.SkipSweep(t)
	tool := findPromtool(t)
	whole := os.Getenv("LOCKKIT_MUTANTS") == "all"
	all := mutants(t, fileText(t, "alerts.yaml"))
	if len(all) < 400 {
		t.Errorf("only %d changes were found", len(all))
	}
	if !whole {
		var some []mutant
		for few := range slices.Chunk(all, 64) {
			some = append(some, few[0])
		}
		all = some
	}

	lives, unread := survivors(t, tool, all)
	known := slices.Concat(slices.Collect(maps.Values(equivalent))...)
	for _, what := range lives {
		if !slices.Contains(known, what) {
			t.Errorf("no test notices: %s", what)
		}
	}
	for _, what := range known {
		if whole && !slices.Contains(lives, what) {
			t.Errorf("said to change nothing, but a test notices it, or there is no such change any more: %s", what)
		}
	}
	if unread > len(all)/20 {
		t.Errorf("%d changes, of which Prometheus does not understand %d", len(all), unread)
	}
	t.Logf("%d changes: %d noticed, %d not understood by Prometheus, %d of no consequence", len(all), len(all)-len(lives)-unread, unread, len(lives))
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	ruleStart = regexp.MustCompile(`(?m)^      - (alert|record): (\S+)\n`)
	exprEnd   = regexp.MustCompile(`(?m)^        (for|labels): |^\n|\z`)
)

// A rule is one rule of a file, from start to end.
type rule struct {
	kind, name string
	start, end int
}

func rulesIn(text string) (all []rule) {
	starts := ruleStart.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		all = append(all, rule{text[at[2]:at[3]], text[at[4]:at[5]], at[0], end})
	}
	return all
}

// mutants returns all changes of all rules. The file of a mutant has the changed rule and the records. If the changed
// rule is a record, it also has the alerts that use it.
func mutants(t *testing.T, text string) (all []mutant) {
	t.Helper()
	rules := rulesIn(text)
	first := slices.IndexFunc(rules, func(r rule) bool { return r.kind == "alert" })
	for _, r := range rules {
		body, before, after, about := text[r.start:r.end], text[:rules[first].start], "", []string{r.name}
		if r.kind == "record" {
			before, after = text[:r.start], text[r.end:rules[first].start]
			for _, user := range rules[first:] {
				if alert := text[user.start:user.end]; strings.Contains(alert, r.name) {
					after, about = after+alert, append(about, user.name)
				}
			}
		}
		exprStart := strings.Index(body, "expr: |\n") + len("expr: |\n")
		end := exprStart + exprEnd.FindStringIndex(body[exprStart:])[0]
		add := func(what, changed string) {
			all = append(all, mutant{about, r.name + ": " + what, before + changed + after})
		}
		for _, c := range changes(body[exprStart:end]) {
			add(c.what, body[:exprStart]+c.text+body[end:])
		}
		if r.kind == "alert" {
			for _, c := range changesOfFor(body[end:]) {
				add(c.what, body[:end]+c.text)
			}
		}
	}
	return all
}

// A change is a text after one edit.
type change struct{ what, text string }

// changesOfFor returns the changes of how long a rule must hold.
func changesOfFor(rest string) (all []change) {
	m := regexp.MustCompile(`^        for: (\d+)m\n`).FindStringSubmatch(rest)
	if m == nil {
		return []change{{"for: 3m", "        for: 3m\n" + rest}}
	}
	minutes, _ := strconv.Atoi(m[1]) // the pattern matches only digits
	without := strings.TrimPrefix(rest, m[0])
	all = append(all, change{"without for", without})
	for _, other := range []int{minutes / 2, minutes * 2} {
		all = append(all, change{fmt.Sprintf("for: %dm, not %s", other, m[1]), fmt.Sprintf("        for: %dm\n", other) + without})
	}
	return all
}

var (
	token = regexp.MustCompile(`\s+|"[^"]*"|\d+[smhd]|\d+(?:\.\d+)?|[A-Za-z_]\w*|=~|!~|!=|>=|<=|==|.`)

	// otherWords has the words that can replace a word of PromQL.
	otherWords = map[string][]string{
		"sum": {"max", "min"}, "max": {"min", "sum"}, "min": {"max", "sum"}, "count": {"sum", "max"},
		"unless": {"and"}, "and": {"unless"}, "or": {"and", "unless"},
		"rate": {"increase"}, "increase": {"rate"}, "min_over_time": {"max_over_time", "last_over_time"}, "last_over_time": {"count_over_time"},
		"floor": {"ceil"}, "abs": {"-abs", ""},
		">": {">=", "<"}, "<": {"<=", ">"}, ">=": {">", "<"}, "<=": {"<", ">"},
		"=": {"!="}, "!=": {"="}, "=~": {"!~"}, "!~": {"=~"},
	}
)

// An edit replaces n tokens, from i on, by text.
type edit struct {
	i, n       int
	what, text string
}

// changes returns the changes of an expression: of each word, number and duration, and of each label that is grouped by
// or selected.
func changes(expr string) (all []change) {
	tokens := token.FindAllString(expr, -1)
	seen := map[string]int{}
	inBraces, inList := false, false
	for i, tok := range tokens {
		switch tok {
		case "{", "}":
			inBraces = tok == "{"
		case "(":
			inList = i >= 2 && (tokens[i-2] == "by" || tokens[i-2] == "on")
		case ")":
			inList = false
		}
		edits := editsOf(tokens, i)
		switch word := regexp.MustCompile(`^\w`).MatchString(tok); {
		case word && inBraces:
			edits = []edit{{i, 3 + comma(tokens, i+3), "without " + strings.Join(tokens[i:i+3], ""), ""}}
		case word && inList:
			edits = withoutLabel(tokens, i)
		}
		for _, e := range edits {
			seen[e.what]++
			all = append(all, change{fmt.Sprintf("%s (%d)", e.what, seen[e.what]), strings.Join(tokens[:e.i], "") + e.text + strings.Join(tokens[e.i+e.n:], "")})
		}
	}
	return append(all, withoutLines(expr)...)
}

// editsOf returns the edits of a single token.
func editsOf(tokens []string, i int) (all []edit) {
	tok := tokens[i]
	for _, other := range otherWords[tok] {
		all = append(all, edit{i, 1, other + ", not " + tok, other})
	}
	switch {
	case strings.HasPrefix(tok, `"`):
		alternatives := strings.Split(strings.Trim(tok, `"`), "|")
		for k := range alternatives {
			if len(alternatives) > 1 {
				all = append(all, edit{i, 1, "without " + alternatives[k] + " of " + tok, `"` + strings.Join(slices.Delete(slices.Clone(alternatives), k, k+1), "|") + `"`})
			}
		}
	case regexp.MustCompile(`^\d+[mh]$`).MatchString(tok):
		d, _ := time.ParseDuration(tok) // tok is a duration
		all = append(all, edit{i, 1, tok + " is twice that", fmt.Sprintf("%ds", int(d.Seconds())*2)},
			edit{i, 1, tok + " is half of that", fmt.Sprintf("%ds", int(d.Seconds())/2)})
	case regexp.MustCompile(`^[\d.]+$`).MatchString(tok):
		for _, other := range otherNumbers(tok) {
			all = append(all, edit{i, 1, other + ", not " + tok, other})
		}
	}
	return all
}

// otherNumbers returns the neighbors of a small whole number. For other numbers it returns a tenth less and a tenth
// more.
func otherNumbers(tok string) []string {
	n, _ := strconv.ParseFloat(tok, 64) // tok is a number
	switch {
	case n == 0:
		return []string{"1"}
	case n == math.Trunc(n) && n < 10:
		return []string{fmt.Sprint(n - 1), fmt.Sprint(n + 1)}
	}
	return []string{fmt.Sprintf("%.4g", n*0.9), fmt.Sprintf("%.4g", n*1.1)}
}

// withoutLabel removes a label that is grouped by, unless it is the only one.
func withoutLabel(tokens []string, i int) []edit {
	what := "not by " + tokens[i]
	if n := comma(tokens, i+1); n > 0 {
		return []edit{{i, 1 + n, what, ""}}
	}
	if tokens[i-2] == "," {
		return []edit{{i - 2, 3, what, ""}}
	}
	return nil
}

// comma returns how many tokens the comma at i takes, with the space after it. It returns 0 if there is no comma.
func comma(tokens []string, i int) int {
	switch {
	case tokens[i] != ",":
		return 0
	case strings.TrimSpace(tokens[i+1]) == "":
		return 2
	}
	return 1
}

// withoutLines returns changes that remove one condition each. A condition is removed only if it has a line of its own.
func withoutLines(expr string) (all []change) {
	lines := strings.SplitAfter(expr, "\n")
	for i, line := range lines {
		if regexp.MustCompile(`^\s*(and|unless|or) .*\n$`).MatchString(line) && strings.Count(line, "(") == strings.Count(line, ")") {
			all = append(all, change{"without " + strings.TrimSpace(line), strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")})
		}
	}
	return all
}
