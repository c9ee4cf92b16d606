package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each call of lockctl that the manual shows is one, and its table has all commands.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	_, section, found := strings.Cut(manual, "\n## lockctl\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("the manual has no section on lockctl")
	}
	for _, c := range (&app{}).commands() {
		if !strings.Contains(section, "\n| `"+c.Name) {
			t.Errorf("the table lacks %s", c.Name)
		}
	}
	calls := regexp.MustCompile(`(?m)^\$ lockctl (.*)$`).FindAllStringSubmatch(section, -1)
	if len(calls) < 6 {
		t.Errorf("found %d calls", len(calls))
	}
	atDesk(t, 3, func(t *testing.T, d *desk) {
		d.service()
		for _, call := range calls {
			args := strings.Fields(call[1])
			switch args[0] {
			case "watch":
				args = append(args, "--for", "1s")
			case "bench":
				continue // of real time
			}
			if got := d.ctl(args...); got.code == exitUsage {
				t.Errorf("lockctl %v: %s", args, got.err)
			}
		}
	})
}
