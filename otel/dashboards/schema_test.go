package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// npm runs npm in dir. It skips the test if that fails. With LOCKKIT_NPM=required, that is a failure.
func npm(t *testing.T, dir string, args ...string) {
	t.Helper()
	cannot := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("LOCKKIT_NPM") == "required" {
			t.Fatalf("npm is required, and "+format, args...)
		}
		t.Skipf("the dashboard is NOT compared with Grafana's schema: "+format, args...)
	}
	path, err := exec.LookPath("npm")
	if err != nil {
		cannot("npm is not on PATH")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		cannot("npm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// The dashboard has the types that Grafana publishes. With another word, type or place it would not.
func TestDashboardIsAsGrafanaHasIt(t *testing.T) {
	dir := t.TempDir()
	files, err := filepath.Glob("schema/*")
	if err != nil || len(files) != 4 {
		t.Fatalf("%q, %v", files, err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		write(filepath.Base(name), read(name))
	}
	npm(t, dir, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")

	const head = "import type { File } from './grafana';\nexport const file: File = "
	dashboard := read("lockkit.json")
	write("dashboard.ts", head+dashboard)
	wrong := [][2]string{
		{`"graphTooltip": 1`, `"graphTooltip": 7`},
		{`"schemaVersion": 39`, `"schemaVersion": "39"`},
		{`"refresh": 2`, `"refresh": 9`},
		{`"type": "query"`, `"type": "querie"`},
		{`"type": "timeseries"`, `"type": "graph"`},
		{`"colorMode": "value"`, `"colorMode": "valu"`},
		{`"showPoints": "never"`, `"showPoints": false`},
		{`"lineWidth": 1`, `"lineWidht": 1`},
		{`"mode": "absolute"`, `"mode": "relative"`},
		{`"displayMode": "table"`, `"displayMode": "rows"`},
		{`"collapsed": false,`, ``},
		{`"refId": "A"`, `"refId": 1`},
		{`"scheme": "Oranges"`, `"scheme": ["Oranges"]`},
		{`"noValue": "0"`, `"noValue": 0`},
	}
	for i, w := range wrong {
		if !strings.Contains(dashboard, w[0]) {
			t.Errorf("the dashboard has no %s", w[0])
		}
		write("wrong"+string(rune('a'+i))+".ts", head+strings.Replace(dashboard, w[0], w[1], 1))
	}
	cmd := exec.CommandContext(t.Context(), "node", "node_modules/typescript/bin/tsc", "--project", ".", "--pretty", "false")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("what is wrong compiles")
	}
	complaints := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+)\.ts\((\d+).*$`).FindAllStringSubmatch(string(out), -1) {
		complaints[m[1]] += m[0] + "\n"
	}
	for i, w := range wrong {
		if complaints["wrong"+string(rune('a'+i))] == "" {
			t.Errorf("%s compiles", w[1])
		}
	}
	if complaints["dashboard"] != "" || complaints["grafana"] != "" || len(complaints) == 0 {
		t.Errorf("tsc: %s%s%v", complaints["grafana"], complaints["dashboard"], err)
	}
}
