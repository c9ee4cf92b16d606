package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// These tests compare the dashboard, the alert rules and the manual with the metrics of the running example.

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// started runs the example until the end of the test, and returns its address.
func started(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, listener, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the example ended with: %v", err)
		}
	})
	return listener.Addr().String()
}

// eventually calls faults once a second until there are none. When the time is up, it reports the last ones.
func eventually(t *testing.T, limit time.Duration, faults func() []string) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last []string
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		if last = faults(); len(last) == 0 {
			return
		}
	}
	t.Errorf("after %v:\n\t%s", limit, strings.Join(last, "\n\t"))
}

// A scrape has the labels of each metric, by the metric's name in queries.
type scrape map[string]map[string]bool

var sample = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*?)\})? [0-9eE.+-]+`)
var label = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

func scraped(t *testing.T, addr string) scrape {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	found := scrape{}
	for _, m := range sample.FindAllStringSubmatch(string(text), -1) {
		if found[m[1]] == nil {
			// Prometheus adds these labels.
			found[m[1]] = map[string]bool{"job": true, "instance": true}
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			found[m[1]][l[1]] = true
		}
	}
	return found
}

// labels returns the labels of all metrics together.
func (s scrape) labels() map[string]bool {
	all := map[string]bool{}
	for _, labels := range s {
		for l := range labels {
			all[l] = true
		}
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A use is a query and its place.
type use struct{ where, expr string }

// panelQueries returns the queries of the dashboard, from the file that users import.
func panelQueries(t *testing.T) (uses []use) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Query, Type string }
		}
	}
	if err := json.NewDecoder(bytes.NewBufferString(read(t, "../../otel/dashboards/lockkit.json"))).Decode(&d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			uses = append(uses, use{"panel " + p.Title, q.Expr})
		}
	}
	if len(uses) < 30 {
		t.Fatalf("%d queries", len(uses))
	}
	return uses
}

// ruleQueries returns the expressions of the rules.
func ruleQueries(t *testing.T) (uses []use) {
	t.Helper()
	text := read(t, "../../otel/dashboards/alerts.yaml")
	for _, m := range regexp.MustCompile(`- ((?:alert|record): \S+)\n\s+expr: \|\n((?:          .*\n)+)`).FindAllStringSubmatch(text, -1) {
		uses = append(uses, use{m[1], m[2]})
	}
	if len(uses) != strings.Count(text, "- alert:")+strings.Count(text, "- record:") {
		t.Fatalf("%d rules read", len(uses))
	}
	return uses
}

// addRecords adds the metrics that rules record, with the labels of the metrics that they are made of.
func (s scrape) addRecords(rules []use) {
	for _, u := range rules {
		name, is := strings.CutPrefix(u.where, "record: ")
		for _, m := range selector.FindAllStringSubmatch(u.expr, -1) {
			if is && s[name] == nil {
				s[name] = s[m[1]]
			}
		}
	}
}

var (
	selector = regexp.MustCompile(`\b(lockkit_[\w:]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// faults returns the faults of a query: metrics and labels that the scrape lacks.
func (u use) faults(s scrape) (faults []string) {
	bad := func(format string, args ...any) {
		faults = append(faults, u.where+": "+fmt.Sprintf(format, args...))
	}

	labels := s.labels()
	used := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(u.expr, -1) {
		metric := s[m[1]]
		if metric == nil {
			if !labels[m[1]] {
				bad("no metric or label is called %s", m[1])
			}
			continue
		}
		for l := range metric {
			used[l] = true
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !metric[l[1]] {
				bad("%s has no label %s", m[1], l[1])
			}
		}
	}

	if len(used) == 0 {
		bad("no metric in %s", u.expr)
	}
	for _, m := range grouping.FindAllStringSubmatch(u.expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !used[l] {
				bad("none of its metrics has the label %s", l)
			}
		}
	}
	return faults
}

// Every metric and label in panels and rules is in a live scrape. The manual describes those of lockkit.
func TestQueriesNameWhatIsExported(t *testing.T) {
	t.Parallel()
	addr := started(t)
	uses := append(panelQueries(t), ruleQueries(t)...)
	eventually(t, 90*time.Second, func() (faults []string) {
		s := scraped(t, addr)
		s.addRecords(uses)
		for _, u := range uses {
			faults = append(faults, u.faults(s)...)
		}
		return faults
	})
	manual := read(t, "../../docs/operations.md")
	for metric := range scraped(t, addr) {
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
		if strings.HasPrefix(metric, "lockkit_") && !strings.Contains(manual, "`"+base+"`") {
			t.Errorf("docs/operations.md does not describe %s", base)
		}
	}
	for l := range scraped(t, addr).labels() {
		if strings.HasPrefix(l, "lockkit_") && !strings.Contains(manual, "`"+l+"`") {
			t.Errorf("docs/operations.md does not describe the label %s", l)
		}
	}
}

// A query that names a missing metric or label is noticed.
func TestDriftIsNoticed(t *testing.T) {
	s := scrape{"lockkit_leases": {"lockkit_name": true, "job": true}}
	for expr, want := range map[string]int{
		`sum by (lockkit_name) (lockkit_leases{job=~"x"})`: 0,
		`sum(lockkit_hold)`:                         2, // so the query has no metric at all
		`lockkit_leases{lockkit_nmae="x"}`:          1, //nolint:misspell // meant to be wrong
		`sum by (lockkit_outcome) (lockkit_leases)`: 2, // no metric has that label
		`vector(1)`: 1,
	} {
		if got := (use{"test", expr}).faults(s); len(got) != want {
			t.Errorf("%s: %q, want %d", expr, got, want)
		}
	}
}

// sources returns the names of the Go files of a package, without its tests.
func sources(t *testing.T, pkg string) (names []string) {
	t.Helper()
	all, err := filepath.Glob("../../" + pkg + "/*.go")
	if err != nil || len(all) == 0 {
		t.Fatalf("no files in %s: %v", pkg, err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// words returns the quoted words in the code that is counted. They are the values that a label can have.
func words(t *testing.T) (words []string) {
	t.Helper()
	quoted := regexp.MustCompile(`"([a-z_]+)"`)
	for _, pkg := range []string{"core", "otel/otellock", "cronlock", "core/leader", "queuelock", "httplock"} {
		for _, name := range sources(t, pkg) {
			for _, m := range quoted.FindAllStringSubmatch(read(t, name), -1) {
				words = append(words, m[1])
			}
		}
	}
	return words
}

// A wanted is a label and a value that a query asks for.
type wanted struct{ label, value string }

// wants returns the values in a query, except those that the code does not list: names that users choose, and booleans.
func (u use) wants() (all []wanted) {
	for _, m := range matcher.FindAllStringSubmatch(u.expr, -1) {
		if m[1] == "job" || m[1] == "lockkit_name" || m[1] == "lockkit_contended" || m[2] == "" {
			continue
		}
		for value := range strings.SplitSeq(m[2], "|") {
			all = append(all, wanted{m[1], value})
		}
	}
	return all
}

// The code can give every value that a query asks for.
func TestQueriesNameValuesThatExist(t *testing.T) {
	words, values := words(t), 0
	for _, u := range append(panelQueries(t), ruleQueries(t)...) {
		for _, w := range u.wants() {
			values++
			if is := regexp.MustCompile("^" + w.value + "$"); !slices.ContainsFunc(words, is.MatchString) {
				t.Errorf("%s: nothing gives %s the value %q", u.where, w.label, w.value)
			}
		}
	}
	if values < 30 {
		t.Errorf("%d values found", values)
	}
}

// Every event of an adapter is in a panel.
func TestEveryEventIsInAPanel(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^\tEvent\w+ +core\.EventKind += "([a-z_]+)"`)
	shown := regexp.MustCompile(`lockkit_source="(\w+)",lockkit_event=~"([^"]*)"`)
	panels := map[string][]string{}
	for _, u := range panelQueries(t) {
		for _, m := range shown.FindAllStringSubmatch(u.expr, -1) {
			panels[m[1]] = append(panels[m[1]], m[2])
		}
	}
	for source, declared := range map[string]struct {
		file  string
		least int // number of kinds
	}{
		"cronlock":  {"cronlock/errors.go", 7},
		"leader":    {"core/leader/errors.go", 3},
		"queuelock": {"queuelock/event.go", 7},
		"httplock":  {"httplock/refusal.go", 7},
	} {
		kinds := constant.FindAllStringSubmatch(read(t, "../../"+declared.file), -1)
		if len(kinds) < declared.least {
			t.Fatalf("%s has %d kinds", source, len(kinds))
		}
		all := regexp.MustCompile("^(" + strings.Join(panels[source], "|") + ")$")
		for _, k := range kinds {
			if !all.MatchString(k[1]) {
				t.Errorf("%s: no panel shows %q", source, k[1])
			}
		}
	}
}
