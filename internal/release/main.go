// Command release checks that the commit of the working tree could be tagged as a version. A tag of that version that
// exists is checked instead of the commit.
//
// It makes a clone with the tag in a temporary directory, and lets the go command make the module of it, as a module
// proxy would. Nothing is tagged in the repository itself, and nothing is left in the module cache.
//
//	go run ./internal/release -version v0.1.0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // the root of the program
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A release is a version that is checked.
type release struct {
	repository string // its working tree
	version    version
	commit     string
	tagged     bool   // the repository has the tag
	module     string // its path
	work       string // a temporary directory
	out        io.Writer
}

// run checks the repository in the working directory.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	name := flags.String("version", "", "the version, such as v0.1.0")
	err = flags.Parse(args)
	if err != nil {
		return err
	}

	v, err := parseVersion(*name)
	if err != nil {
		return err
	}

	work, err := os.MkdirTemp("", "release-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	r := &release{repository: ".", version: v, work: work, out: out}
	return r.check(ctx)
}

// check runs the steps up to the first that fails.
func (r *release) check(ctx context.Context) error {
	err := r.choose(ctx)
	if err != nil {
		return err
	}

	err = r.checkChangelog(ctx)
	if err != nil {
		return err
	}

	err = r.checkAPI(ctx)
	if err != nil {
		return err
	}

	files, err := r.publish(ctx)
	if err != nil {
		return err
	}

	err = r.buildNested(ctx)
	if err != nil {
		return err
	}

	err = r.useOutside(ctx, files)
	if err != nil {
		return err
	}

	r.say("%s could be tagged", r.version)
	return nil
}

// say prints the result of a step.
func (r *release) say(format string, args ...any) {
	fmt.Fprintf(r.out, "==> release-check: "+format+"\n", args...)
}
