package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

const (
	beginMark = "<!-- Written by make choose: begin. -->"
	endMark   = "<!-- Written by make choose: end. -->"
)

// report is what is printed, and written into the document.
func report(backends []backend, pauses []pause, times []timing, much amount) string {
	var b strings.Builder
	counted := much.rounds - 1
	fmt.Fprintf(&b, "Ways take turns, %d rounds of %d pairs and %d hand-offs each; the median, and in parentheses the ninth decile. Hand-off: from the\nend of one holder's work to the beginning of the next one's, who has waited for %d to %d ms, or for %d to %d.\n\n",
		counted, much.pairs, much.handoffs, stays[0].Milliseconds(), (stays[0] * 3 / 2).Milliseconds(), stays[1].Milliseconds(), (stays[1] * 3 / 2).Milliseconds())
	fmt.Fprintf(&b, "| way | lock and unlock | hand-off after %d ms | hand-off after %d ms |\n|---|--:|--:|--:|\n", stays[0].Milliseconds(), stays[1].Milliseconds())
	for i, t := range times {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", backends[i].title, both(t.pairs), both(t.handoffs[0]), both(t.handoffs[1]))
	}
	fmt.Fprintf(&b, "\nA process that holds the key is stopped (`SIGSTOP`) until somebody else has done its work, with a TTL of %v, and then writes\nwithout a look at its context.\n\n", ttl)
	fmt.Fprintln(&b, "| way | somebody else has the key after | context had ended when it wrote | the store | in the end it is told |\n|---|--:|---|---|---|")
	for _, p := range pauses {
		knew := "no"
		if p.knew {
			knew = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.of, short(p.free), knew, verdict(p.write), firstLine(p.do))
	}
	fmt.Fprintf(&b, "\nThis run: %s, %s, %s/%s, %d cores, %s.", time.Now().UTC().Format("2006-01-02 15:04 UTC"), versions(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return b.String()
}

func verdict(write string) string {
	if write == errStale.Error() {
		return "refused the write"
	}
	return write
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	line, _, _ = strings.Cut(line, ": node ") // what each node answered
	return "`" + line + "`"
}

// both are the median and the ninth decile.
func both(sorted []time.Duration) string {
	return short(quantile(sorted, 0.5)) + " (" + short(quantile(sorted, 0.9)) + ")"
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

var version = regexp.MustCompile(`\d+(\.\d+)+`)

// versions are those of the servers.
func versions() string {
	redis := "embedded nodes in place of Redis"
	if testutil.ServerAvailable() {
		redis = "Redis " + ask("redis-server")
	}
	all := []string{redis}
	if _, err := exec.LookPath("etcd"); err == nil {
		all = append(all, "etcd "+ask("etcd"))
	}
	if bin, err := postgresBin(); err == nil {
		all = append(all, "PostgreSQL "+ask(filepath.Join(bin, "postgres")))
	}
	return strings.Join(all, ", ")
}

func ask(program string) string {
	out, _ := exec.Command(program, "--version").Output()
	return version.FindString(string(out))
}

// writeInto replaces what is between the marks in choose.md.
func writeInto(docs, text string) error {
	file := filepath.Join(docs, "choose.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return errors.New(file + " has not the marks between which the tables go")
	}
	return os.WriteFile(file, []byte(before+beginMark+"\n"+text+"\n"+endMark+after), 0o644)
}
