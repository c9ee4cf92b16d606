package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestDashboardIsGenerated(t *testing.T) {
	file, err := os.ReadFile("lockkit.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, render()) {
		t.Error("lockkit.json is not what panels.go makes: run go generate ./otel/dashboards")
	}
}

// The dashboard has what Grafana needs to show it. The file is read back strictly.
func TestDashboardIsWellFormed(t *testing.T) {
	file, err := os.ReadFile("lockkit.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}

	if d.UID == "" || len(d.UID) > 40 || d.SchemaVersion < 36 {
		t.Errorf("uid %q, schema %d", d.UID, d.SchemaVersion)
	}
	known := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
	}
	if !known["datasource"] || !known["name"] || !known["job"] {
		t.Errorf("variables %v", known)
	}

	taken := map[gridPos]int{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] {
			t.Errorf("%s: id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		checkPlace(t, p, taken)
		checkPanel(t, p)
		checkQueries(t, p, known)
	}

	if len(ids) < 30 {
		t.Errorf("%d panels", len(ids))
	}
}

// checkPlace checks that p does not overlap the panels in taken, and does not lie outside.
func checkPlace(t *testing.T, p panel, taken map[gridPos]int) {
	t.Helper()
	for x := range p.GridPos.W {
		for y := range p.GridPos.H {
			at := gridPos{X: p.GridPos.X + x, Y: p.GridPos.Y + y}
			if other, ok := taken[at]; ok || at.X >= 24 {
				t.Fatalf("panel %d %q lies on panel %d, or outside: %+v", p.ID, p.Title, other, p.GridPos)
			}
			taken[at] = p.ID
		}
	}
}

func checkPanel(t *testing.T, p panel) {
	t.Helper()
	switch p.Type {
	case "row":
		return
	case "stat", "timeseries", "heatmap":
	default:
		t.Errorf("%s is a %q", p.Title, p.Type)
	}
	if p.Title == "" || len(p.Targets) == 0 || p.Datasource == nil || p.Datasource.UID != "${datasource}" {
		t.Errorf("panel %d %q: %d queries of %v", p.ID, p.Title, len(p.Targets), p.Datasource)
	}
}

var usedVariable, usedLabel = regexp.MustCompile(`\$(\w+)`), regexp.MustCompile(`{{(\w+)}}`)

// checkQueries checks that the queries of p are complete, and use only known variables and labels.
func checkQueries(t *testing.T, p panel, known map[string]bool) {
	t.Helper()
	if p.Type == "row" {
		return
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.Expr == "" || refs[q.RefID] || q.Datasource.UID != "${datasource}" || (q.LegendFormat == "") != (p.Type == "stat") {
			t.Errorf("%s: query %+v", p.Title, q)
		}
		refs[q.RefID] = true
		for _, m := range usedVariable.FindAllStringSubmatch(q.Expr, -1) {
			if !known[m[1]] {
				t.Errorf("%s: $%s is not a variable", p.Title, m[1])
			}
		}
		for _, m := range usedLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
			if !strings.Contains(q.Expr, m[1]) {
				t.Errorf("%s: the legend has %s, the query does not", p.Title, m[1])
			}
		}
	}
}

// findPromtool skips the test if promtool is not installed. With LOCKKIT_PROMTOOL=required, that is a failure.
func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("LOCKKIT_PROMTOOL") == "required" {
			t.Fatal("promtool is required and not on PATH: install prometheus")
		}
		t.Skip("promtool is not on PATH: the alert rules are NOT tested")
	}
	return path
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(findPromtool(t), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsAreValid(t *testing.T) { promtool(t, "check", "rules", "alerts.yaml") }

func TestAlertsFire(t *testing.T) {
	promtool(t, append([]string{"test", "rules"}, ruleTests(t)...)...)
}

// ruleTests returns the files of tests for the alert rules.
func ruleTests(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("alerts*_test.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%q, %v", names, err)
	}
	return names
}

// Every alert has a test in which it fires, and a section in the manual.
func TestAlertsAreTestedAndDescribed(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, tests, manual := read("alerts.yaml"), "", read("../../docs/operations.md")
	for _, name := range ruleTests(t) {
		tests += read(name)
	}
	names := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(names) < 6 {
		t.Fatalf("%d alerts", len(names))
	}
	for _, m := range names {
		anchor := "docs/operations.md#" + strings.ToLower(m[1])
		if !strings.Contains(rules, "runbook: "+anchor+"\n") {
			t.Errorf("%s has no runbook %s", m[1], anchor)
		}
		if !strings.Contains(tests, "runbook: "+anchor+"}") {
			t.Errorf("%s fires in no test", m[1])
		}
		if !strings.Contains(manual, "\n### "+m[1]+"\n") {
			t.Errorf("docs/operations.md has no section %s", m[1])
		}
	}
}
