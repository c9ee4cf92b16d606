// Command mutants breaks the code on purpose, in one place at a time, and fails if the tests do not notice.
//
// Each mutant is an entry of a file in lists: a small change of the code, the guarantee of docs/guarantees.md that the
// change breaks, and the test that must fail. A mutant that survives is a rule that no test protects. The checkout is
// not touched: go test reads the changed file through an overlay.
//
//	go run ./internal/mutants [-run REGEXP] [-j N] [-timeout D]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // the root of the program
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run runs the mutants of the repository in the working directory.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("run", "", "try only mutants whose name, guarantee or file matches this regular expression")
	atOnce := flags.Int("j", max(1, runtime.NumCPU()/2), "how many mutants are tried at a time")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long the tests of a mutant may run")
	err := flags.Parse(args)
	if err != nil {
		return err
	}

	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}

	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}

	mutants, err := loadLists(root, filepath.Join(root, "internal", "mutants", "lists"))
	if err != nil {
		return err
	}

	g := gate{root: root, atOnce: *atOnce, timeout: *timeout, out: os.Stdout}
	return g.run(ctx, chosen(mutants, pattern))
}

// chosen returns the mutants whose name, guarantee or file matches the pattern.
func chosen(mutants []mutant, pattern *regexp.Regexp) (some []mutant) {
	for _, m := range mutants {
		matches := pattern.MatchString(m.name) || pattern.MatchString(m.guarantee) || pattern.MatchString(m.file)
		if matches {
			some = append(some, m)
		}
	}
	return some
}
