package locktest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// runTest runs the test of an example, and prints its result.
func runTest(test func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &exampleTest{ctx: ctx}
	defer func() {
		cancel()
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
		if !t.failed {
			fmt.Println("ok")
		}
	}()
	test(t)
}

// An exampleTest has the methods of testing.TB that locktest needs.
type exampleTest struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
	failed   bool
}

func (t *exampleTest) Helper()                  {}
func (t *exampleTest) Context() context.Context { return t.ctx }
func (t *exampleTest) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }

func (t *exampleTest) Error(args ...any) {
	t.failed = true
	fmt.Println(args...)
}

func (t *exampleTest) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }

func (t *exampleTest) Fatal(args ...any) {
	t.Error(args...)
	panic("the test has failed")
}

func (t *exampleTest) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }
