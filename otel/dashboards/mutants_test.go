package main

import (
	"bytes"
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
)

// This file runs the tests of the rules on mutants.

// survivors returns the changes that no test notices, and the number of changes that Prometheus cannot parse.
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

// written writes each mutant and its tests into files of a directory. It returns the files of each mutant's tests.
func written(t *testing.T, all []mutant) (dir string, files [][]string) {
	t.Helper()
	dir, files = t.TempDir(), make([][]string, len(all))
	tests := map[string]string{}
	for _, name := range ruleTests(t) {
		tests[name] = fileText(t, name)
	}
	for i, m := range all {
		at := strconv.Itoa(i)
		texts := testsOf(m.about, tests)
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
			t.Fatalf("%d tests of %s, %v", len(files[i]), m.what, err)
		}
	}
	return dir, files
}

// The verdicts of promtool on a file of tests.
const (
	passed = iota
	noticed
	misunderstood // the rule cannot be parsed
)

var verdict = regexp.MustCompile(`(?m)^  (SUCCESS|FAILED:)$`)

// verdictsOf returns the verdicts of promtool on the files, in their order.
func verdictsOf(t *testing.T, tool, dir string, files []string) (all []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool, append([]string{"test", "rules"}, files...)...)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // promtool fails if it notices a change, so only the output counts
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

// testsOf returns the tests that check one of the rules, by file.
func testsOf(rules []string, files map[string]string) map[string]string {
	const group = "\n  - name: "
	texts := map[string]string{}
	for name, text := range files {
		head, rest, _ := strings.Cut(text, group)
		var found strings.Builder
		for test := range strings.SplitSeq(rest, group) {
			found.WriteString(checksOf(rules, group+test))
		}
		if found.String() != "" {
			texts[name] = head + found.String()
		}
	}
	return texts
}

var checksStart = regexp.MustCompile(`\n    (?:alert_rule|promql_expr)_test:`)

// checksOf returns a test with only its checks of the rules, or "" if it checks none of them.
func checksOf(rules []string, test string) string {
	const check = "\n      - "
	starts := checksStart.FindAllStringIndex(test, -1)
	text, any := test[:starts[0][0]], false
	for i, at := range starts {
		end := len(test)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		var found strings.Builder
		for c := range strings.SplitSeq(test[at[1]:end], check) {
			if slices.ContainsFunc(rules, func(rule string) bool { return regexp.MustCompile(regexp.QuoteMeta(rule) + `\b`).MatchString(c) }) {
				found.WriteString(check + strings.TrimSuffix(c, "\n"))
			}
		}
		if found.String() != "" {
			text, any = text+test[at[0]:at[1]]+found.String(), true
		}
	}
	if !any {
		return ""
	}
	return text + "\n"
}
