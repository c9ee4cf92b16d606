package sim

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Seeds of TestChance.
const (
	failing  = 1000 // fails because of step b
	spinning = 1001 // never ends
)

// TestChance runs programs whose traces depend on everything that Go leaves to chance.
func TestChance(t *testing.T) {
	chance.Test(t)
}

var chance = Campaign{
	Draw: func(*rand.Rand) Program { return Program{Steps: []Step{{Do: "a"}, {Do: "b"}, {Do: "c"}}} },
	Run: func(t *Trial) {
		if t.Seed == failing && slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Do == "b" }) {
			t.Violation("b")
		}
		for n := 0; t.Seed == spinning; n = next(n) {
		}

		for i := range 20 {
			time.AfterFunc(time.Second, func() {
				t.Tracef("timer %d", i)
				go t.Tracef("goroutine %d", i)
			})
		}
		time.Sleep(2 * time.Second)

		ready := make(chan int)
		close(ready)
		for range 20 {
			select {
			case <-ready:
				t.Tracef("first case")
			case <-ready:
				t.Tracef("second case")
			}
		}

		for n := range map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true} {
			t.Tracef("element %d", n)
		}

		t.Tracef("numbers %d and %s", rand.Int(), cryptorand.Text())

		for i := range 3 { // each works for longer than the runtime lets a goroutine run at a time
			go func() {
				n := 0
				for range 20_000_000 {
					n = next(n)
				}
				t.Tracef("worker %d has %d", i, n)
			}()
		}
		time.Sleep(time.Second)
	},
}

//go:noinline
func next(n int) int { return n*5 + 1 }

// Two runs of an attempt have the same trace, and another attempt has another.
func TestSeedsRepeat(t *testing.T) {
	needFixedProcesses(t, repetition{test: "TestChance", seed: 1, attempt: 1})

	for seed := range uint64(3) {
		one := repeated(t, repetition{test: "TestChance", seed: seed, attempt: 1})
		other := repeated(t, repetition{test: "TestChance", seed: seed, attempt: 2})
		if one == other {
			t.Errorf("seed %d: attempts 1 and 2 do the same", seed)
		}
	}
}

// A program that fails in a fixed process is shrunk in fixed processes.
func TestShrinkInFixedProcesses(t *testing.T) {
	needFixedProcesses(t, repetition{test: "TestChance", seed: 1, attempt: 1})

	r, output, text := repetition{test: "TestChance", seed: failing}.find()
	if r.attempt != 1 || text != "again: SEED=1000 go test -run '^TestChance$' -count=1 -v -sim.attempt=1" {
		t.Fatalf("%v: %s", r, text)
	}
	smallest := chance.shrinkFixed(r, output)
	if strings.Contains(smallest, "0s  a 0") || !strings.Contains(smallest, "0s  b 0") || !strings.Contains(smallest, violationMark+"b") {
		t.Error(smallest)
	}
}

// A seed that has failed here may pass in every fixed process.
func TestFailsInNoFixedProcess(t *testing.T) {
	needFixedProcesses(t, repetition{test: "TestChance", seed: 1, attempt: 1})

	_, _, text := repetition{test: "TestChance", seed: 1}.find()
	if want := "again, but it may pass, as it did in 5 fixed processes: SEED=1 go test -run '^TestChance$' -count=1 -v"; text != want {
		t.Errorf("%s, not %s", text, want)
	}
}

// A fixed process that does not end is killed.
func TestFixedProcessSpins(t *testing.T) {
	needFixedProcesses(t, repetition{test: "TestChance", seed: 1, attempt: 1})
	before := patience
	t.Cleanup(func() { patience = before })
	patience = time.Second

	_, _, text := repetition{test: "TestChance", seed: spinning}.find()
	if want := "again, but it may pass, because there is no fixed process: it was killed after 1s: SEED=1001 go test -run '^TestChance$' -count=1 -v"; text != want {
		t.Errorf("%s, not %s", text, want)
	}
}

// If there is no fixed process, a seed runs in this process.
func TestNoFixedProcess(t *testing.T) {
	before, attemptBefore := os.Args[0], *attempt
	t.Cleanup(func() { os.Args[0], *attempt = before, attemptBefore })
	os.Args[0], *attempt = "/dev/null", 1 // no program

	_, _, text := repetition{test: "TestChance", seed: 1}.find()
	if !strings.HasPrefix(text, "again, but it may pass, because there is no fixed process: ") || !strings.HasSuffix(text, ": SEED=1 go test -run '^TestChance$' -count=1 -v") {
		t.Error(text)
	}

	ran := false
	simulation{run: func(*testing.T, uint64, Counts) { ran = true }}.runOne(t, 1)
	if !ran {
		t.Error("the seed did not run")
	}
}
