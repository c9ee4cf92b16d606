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
		"LockkitStuckHolder: max, not sum (2)", "LockkitStuckHolder: max, not sum (3)",
		"LockkitTickMissed: max, not sum (1)",
	},
	"the one is above 0 if the other is": {
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

// changes are those of an expression: of each word, number and duration, of each label that is grouped by or asked for.
func changes(expr string) (all []change) {
	tokens := token.FindAllString(expr, -1)
	seen := map[string]int{}
	with := func(i, n int, what, text string) {
		seen[what]++
		all = append(all, change{fmt.Sprintf("%s (%d)", what, seen[what]), strings.Join(tokens[:i], "") + text + strings.Join(tokens[i+n:], "")})
	}
	inBraces, inList := false, false
	for i, tok := range tokens {
		switch {
		case tok == "{" || tok == "}":
			inBraces = tok == "{"
		case tok == "(" && i >= 2 && (tokens[i-2] == "by" || tokens[i-2] == "on"):
			inList = true
		case tok == ")":
			inList = false
		case inBraces && regexp.MustCompile(`^\w`).MatchString(tok):
			with(i, 3+len(comma(tokens, i+3)), "without "+strings.Join(tokens[i:i+3], ""), "")
		case inList && regexp.MustCompile(`^\w`).MatchString(tok):
			if rest := comma(tokens, i+1); len(rest) > 0 {
				with(i, 1+len(rest), "not by "+tok, "")
			} else if i >= 2 && tokens[i-2] == "," {
				with(i-2, 3, "not by "+tok, "")
			}
		case strings.HasPrefix(tok, `"`):
			alternatives := strings.Split(strings.Trim(tok, `"`), "|")
			for k := range alternatives {
				if len(alternatives) > 1 {
					with(i, 1, "without "+alternatives[k]+" of "+tok, `"`+strings.Join(slices.Delete(slices.Clone(alternatives), k, k+1), "|")+`"`)
				}
			}
		case regexp.MustCompile(`^\d+[smhd]$`).MatchString(tok):
			n, _ := strconv.Atoi(tok[:len(tok)-1]) // digits
			with(i, 1, tok+" is twice that", strconv.Itoa(n*2)+tok[len(tok)-1:])
			with(i, 1, tok+" is half of that", map[byte]string{'m': strconv.Itoa(n*30) + "s", 'h': strconv.Itoa(n*30) + "m"}[tok[len(tok)-1]])
		case regexp.MustCompile(`^\d`).MatchString(tok):
			n, _ := strconv.ParseFloat(tok, 64) // a number
			others := []float64{n * 0.9, n * 1.1}
			if n == math.Trunc(n) && n < 10 { // it counts something
				others = []float64{max(n-1, 0), n + 1}
			}
			for _, other := range others {
				if other == n {
					continue
				}
				with(i, 1, fmt.Sprintf("%.4g, not %s", other, tok), fmt.Sprintf("%.4g", other))
			}
		}
		for _, other := range otherWords[tok] {
			with(i, 1, other+", not "+tok, other)
		}
	}
	return append(all, withoutLines(expr)...)
}

// comma is the comma that stands at i, and the space behind it.
func comma(tokens []string, i int) []string {
	if i >= len(tokens) || tokens[i] != "," {
		return nil
	}
	if strings.TrimSpace(tokens[i+1]) == "" {
		return tokens[i : i+2]
	}
	return tokens[i : i+1]
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
	dir, tests := t.TempDir(), map[string]string{}
	for _, name := range ruleTests(t) {
		tests[name] = fileText(t, name)
	}
	files := make([][]string, len(all)) // the tests of each, in dir
	for i, m := range all {
		at := strconv.Itoa(i)
		texts := testsOf(m.alert, tests)
		texts["alerts.yaml"] = m.rules
		err := os.Mkdir(filepath.Join(dir, at), 0o700)
		for name, text := range texts {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, at, name), []byte(text), 0o600)
			}
			if name != "alerts.yaml" {
				files[i] = append(files[i], filepath.Join(at, name))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const batch = 20
	var mu sync.Mutex
	var running sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for first := 0; first < len(all); first += batch {
		end := min(first+batch, len(all))
		args := append([]string{"test", "rules"}, slices.Concat(files[first:end]...)...)
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			cmd := exec.CommandContext(t.Context(), tool, args...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // fails, as it should: what it says counts
			mu.Lock()
			defer mu.Unlock()
			noticed, unreadable := map[int]bool{}, map[int]bool{}
			for _, part := range bytes.Split(out, []byte("Unit Testing:  "))[1:] {
				number, _, _ := strings.Cut(string(part), string(filepath.Separator))
				i, err := strconv.Atoi(number)
				switch {
				case err != nil:
					t.Errorf("promtool: %s", part)
				case bytes.Contains(part, []byte("could not parse expression")):
					unreadable[i] = true
				case bytes.Contains(part, []byte("\n  FAILED")):
					noticed[i] = true
				case !bytes.Contains(part, []byte("\n  SUCCESS")):
					t.Errorf("promtool: %s", part)
				}
			}
			unread += len(unreadable)
			for i := first; i < end; i++ {
				if !noticed[i] && !unreadable[i] {
					lives = append(lives, all[i].what)
				}
			}
		})
	}
	running.Wait()
	slices.Sort(lives)
	return lives, unread
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
