package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// Rules that are a little wrong: alerts_test.yaml must notice each.

// A mutant is the rule of an alert with one change, in a file of its own.
type mutant struct{ alert, what, rules string }

// equivalent are changes after which each alert fires when it did before, by the reason.
var equivalent = map[string][]string{
	"none is negative, and the rule asks only whether the sum is above 0: it is if one of them is": {
		"LockkitHeldTooLong: max, not sum (1)",
		"LockkitHolderUnknown: max, not sum (1)", "LockkitHolderUnknown: max, not sum (3)", "LockkitHolderUnknown: sum, not max (1)",
		"LockkitLedgerFailing: max, not sum (1)", "LockkitLedgerFailing: max, not sum (2)",
		"LockkitLost: max, not sum (1)",
		"LockkitOverloaded: max, not sum (1)",
		"LockkitStuckHolder: max, not sum (2)", "LockkitStuckHolder: max, not sum (3)",
		"LockkitTickMissed: max, not sum (1)",
	},
	"the one is above 0 if the other is": {
		"LockkitOverloaded: increase, not rate (1)",
		"LockkitHeldTooLong: rate, not increase (1)",
		"LockkitHolderUnknown: rate, not increase (1)",
		"LockkitLedgerFailing: rate, not increase (1)", "LockkitLedgerFailing: rate, not increase (2)",
		"LockkitLost: rate, not increase (1)",
		"LockkitNodeNotVoting: rate, not increase (1)",
		"LockkitStuckHolder: rate, not increase (1)",
		"LockkitTickMissed: rate, not increase (1)",
	},
	"the rule asks only whether there was a value": {
		"LockkitHeldTooLong: count_over_time, not last_over_time (1)",
		"LockkitLedgerFailing: count_over_time, not last_over_time (1)", "LockkitLedgerFailing: count_over_time, not last_over_time (2)",
		"LockkitLost: count_over_time, not last_over_time (1)",
		"LockkitStuckHolder: count_over_time, not last_over_time (1)",
		"LockkitTickMissed: count_over_time, not last_over_time (1)",
	},
	"a quantile does not depend on the scale": {"LockkitSlowWait: increase, not rate (1)"},
}

// Whatever changes when an alert fires, or whether, fails a test of the rules.
func TestRulesSurviveNoMutation(t *testing.T) {
	race.Campaign(t)
	tool := findPromtool(t)
	all := mutants(t, fileText(t, "alerts.yaml"))
	lives, unread := survivors(t, tool, all)
	known := slices.Concat(slices.Collect(maps.Values(equivalent))...)
	for _, what := range lives {
		if !slices.Contains(known, what) {
			t.Errorf("no test notices: %s", what)
		}
	}
	for _, what := range known {
		if !slices.Contains(lives, what) {
			t.Errorf("said to change nothing, but a test notices it, or there is no such change any more: %s", what)
		}
	}
	if len(all) < 400 || unread > len(all)/20 {
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

var ruleStart = regexp.MustCompile(`(?m)^      - alert: (\w+)\n`)

// mutants are all changes of all rules.
func mutants(t *testing.T, rules string) (all []mutant) {
	t.Helper()
	starts := ruleStart.FindAllStringSubmatchIndex(rules, -1)
	for i, at := range starts {
		end := len(rules)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name, rule, head := rules[at[2]:at[3]], rules[at[0]:end], rules[:starts[0][0]]
		exprEnd := regexp.MustCompile(`(?m)^        (for|labels): `).FindStringIndex(rule)
		if exprEnd == nil {
			t.Fatalf("%s: no end of its expression", name)
		}
		exprStart := strings.Index(rule, "expr: |\n") + len("expr: |\n")
		add := func(what, changed string) {
			all = append(all, mutant{name, name + ": " + what, head + changed})
		}
		for _, c := range changes(rule[exprStart:exprEnd[0]]) {
			add(c.what, rule[:exprStart]+c.text+rule[exprEnd[0]:])
		}
		for _, c := range changesOfFor(rule[exprEnd[0]:]) {
			add(c.what, rule[:exprEnd[0]]+c.text)
		}
	}
	return all
}

// A change is a text with something else in it.
type change struct{ what, text string }

// changesOfFor are those of how long a rule must hold.
func changesOfFor(rest string) (all []change) {
	m := regexp.MustCompile(`^        for: (\d+)m\n`).FindStringSubmatch(rest)
	if m == nil {
		return []change{{"for: 3m", "        for: 3m\n" + rest}}
	}
	minutes, _ := strconv.Atoi(m[1]) // digits
	without := strings.TrimPrefix(rest, m[0])
	all = append(all, change{"without for", without})
	for _, other := range []int{minutes / 2, minutes * 2} {
		all = append(all, change{fmt.Sprintf("for: %dm, not %s", other, m[1]), fmt.Sprintf("        for: %dm\n", other) + without})
	}
	return all
}

var (
	token = regexp.MustCompile(`\s+|"[^"]*"|\d+[smhd]|\d+(?:\.\d+)?|[A-Za-z_]\w*|=~|!~|!=|>=|<=|==|.`)

	// otherWords are what a word of PromQL is mistaken for.
	otherWords = map[string][]string{
		"sum": {"max", "min"}, "max": {"min", "sum"}, "min": {"max", "sum"}, "count": {"sum", "max"},
		"unless": {"and"}, "and": {"unless"}, "or": {"and", "unless"},
		"rate": {"increase"}, "increase": {"rate"}, "min_over_time": {"max_over_time", "last_over_time"}, "last_over_time": {"count_over_time"},
		"floor": {"ceil"}, "abs": {"-abs", ""},
		">": {">=", "<"}, "<": {"<=", ">"}, ">=": {">", "<"}, "<=": {"<", ">"},
		"=": {"!="}, "!=": {"="}, "=~": {"!~"}, "!~": {"=~"},
	}
)

// An edit is of n tokens from i on, into text.
type edit struct {
	i, n       int
	what, text string
}

// changes are those of an expression: of each word, number and duration, of each label that is grouped by or asked for.
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

// editsOf are those of a token by itself.
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
		d, _ := time.ParseDuration(tok) // such a one
		all = append(all, edit{i, 1, tok + " is twice that", fmt.Sprintf("%ds", int(d.Seconds())*2)},
			edit{i, 1, tok + " is half of that", fmt.Sprintf("%ds", int(d.Seconds())/2)})
	case regexp.MustCompile(`^[\d.]+$`).MatchString(tok):
		for _, other := range otherNumbers(tok) {
			all = append(all, edit{i, 1, other + ", not " + tok, other})
		}
	}
	return all
}

// otherNumbers are the neighbours of what counts something, and else a tenth less and more.
func otherNumbers(tok string) []string {
	n, _ := strconv.ParseFloat(tok, 64) // a number
	switch {
	case n == 0:
		return []string{"1"}
	case n == math.Trunc(n) && n < 10:
		return []string{fmt.Sprint(n - 1), fmt.Sprint(n + 1)}
	}
	return []string{fmt.Sprintf("%.4g", n*0.9), fmt.Sprintf("%.4g", n*1.1)}
}

// withoutLabel leaves out a label of those that are grouped by, unless it is the only one.
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

// comma is how many tokens the comma at i takes, with the space behind it: 0 if there is none.
func comma(tokens []string, i int) int {
	switch {
	case tokens[i] != ",":
		return 0
	case strings.TrimSpace(tokens[i+1]) == "":
		return 2
	}
	return 1
}

// withoutLines are the expression without each of the conditions that stand on lines of their own.
func withoutLines(expr string) (all []change) {
	lines := strings.SplitAfter(expr, "\n")
	for i, line := range lines {
		if regexp.MustCompile(`^\s*(and|unless|or) .*\n$`).MatchString(line) && strings.Count(line, "(") == strings.Count(line, ")") {
			all = append(all, change{"without " + strings.TrimSpace(line), strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")})
		}
	}
	return all
}

// survivors are the changes that no test notices, and how many are none that Prometheus understands.
func survivors(t *testing.T, tool string, all []mutant) (lives []string, unread int) {
	t.Helper()
	dir, files := written(t, all)
	const batch = 20
	var mu sync.Mutex
	var running sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for first := 0; first < len(all); first += batch {
		end := min(first+batch, len(all))
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			verdicts := verdictsOf(t, tool, dir, slices.Concat(files[first:end]...))
			mu.Lock()
			defer mu.Unlock()
			for i := first; i < end; i++ {
				its := verdicts[:min(len(files[i]), len(verdicts))]
				verdicts = verdicts[len(its):]
				switch {
				case slices.Contains(its, misunderstood):
					unread++
				case !slices.Contains(its, noticed):
					lives = append(lives, all[i].what)
				}
			}
		})
	}
	running.Wait()
	slices.Sort(lives)
	return lives, unread
}

// written puts each mutant and its tests into files of a directory, and returns those of the tests.
func written(t *testing.T, all []mutant) (dir string, files [][]string) {
	t.Helper()
	dir, files = t.TempDir(), make([][]string, len(all))
	tests := map[string]string{}
	for _, name := range ruleTests(t) {
		tests[name] = fileText(t, name)
	}
	for i, m := range all {
		at := strconv.Itoa(i)
		texts := testsOf(m.alert, tests)
		for name := range texts {
			files[i] = append(files[i], filepath.Join(at, name))
		}
		texts["alerts.yaml"] = m.rules
		err := os.Mkdir(filepath.Join(dir, at), 0o700)
		for name, text := range texts {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, at, name), []byte(text), 0o600)
			}
		}
		if err != nil || len(files[i]) == 0 {
			t.Fatalf("%d tests of %s, %v", len(files[i]), m.alert, err)
		}
	}
	return dir, files
}

// What promtool finds in a file of tests.
const (
	passed = iota
	noticed
	misunderstood // no rule at all
)

var verdict = regexp.MustCompile(`(?m)^  (SUCCESS|FAILED:)$`)

// verdictsOf are what promtool finds in each file, in their order.
func verdictsOf(t *testing.T, tool, dir string, files []string) (all []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool, append([]string{"test", "rules"}, files...)...)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // fails, as it should: what it says counts
	ends := verdict.FindAllIndex(out, -1)
	if len(ends) != len(files) {
		t.Errorf("promtool on %d files: %s", len(files), out)
		return nil
	}
	for k, at := range ends {
		said := out[at[0]:]
		if k+1 < len(ends) {
			said = out[at[0]:ends[k+1][0]]
		}
		switch {
		case bytes.Contains(said, []byte("could not parse expression")):
			all = append(all, misunderstood)
		case bytes.HasPrefix(said, []byte("  FAILED")):
			all = append(all, noticed)
		default:
			all = append(all, passed)
		}
	}
	return all
}

// testsOf are the tests in which an alert is looked at, by file.
func testsOf(alert string, files map[string]string) map[string]string {
	const group = "\n  - name: "
	texts := map[string]string{}
	for name, text := range files {
		head, rest, _ := strings.Cut(text, group)
		found := ""
		for test := range strings.SplitSeq(rest, group) {
			found += checksOf(alert, group+test)
		}
		if found != "" {
			texts[name] = head + found
		}
	}
	return texts
}

// checksOf is a test with what it checks of an alert, empty if it checks nothing of it.
func checksOf(alert, test string) string {
	const check = "\n      - "
	input, checks, _ := strings.Cut(test, "\n    alert_rule_test:"+check)
	found := ""
	for c := range strings.SplitSeq(checks, check) {
		if strings.Contains(c, "alertname: "+alert+",") || strings.Contains(c, "alertname: "+alert+"\n") {
			found += check + strings.TrimSuffix(c, "\n")
		}
	}
	if found == "" {
		return ""
	}
	return input + "\n    alert_rule_test:" + found + "\n"
}
