package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A program that fails because of two steps and a number is shrunk to these.
func TestShrink(t *testing.T) {
	p := Program{Plan: map[string]int{"replicas": 4, "grace": 7}}
	for i := range 60 {
		p.Steps = append(p.Steps, Step{At: time.Duration(i) * time.Second, Do: fmt.Sprint("step ", i), Who: i, For: time.Minute, N: 5,
			With: map[string]int{"once": i, "size": 2}})
	}

	tried := 0
	got := Shrink(p, 1000, func(p Program) bool {
		tried++
		has := func(do string) bool { return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == do }) }
		return has("step 17") && has("step 44") && p.Plan["replicas"] >= 2 && p.Steps[len(p.Steps)-1].With["once"] > 0
	})

	if len(got.Steps) != 2 || got.Steps[0].Do != "step 17" || got.Steps[1].Do != "step 44" {
		t.Errorf("steps %v", got.Steps)
	}
	if got.Plan["replicas"] != 2 || got.Plan["grace"] != 0 || got.Steps[0].For != 0 || got.Steps[0].N != 0 {
		t.Errorf("%v", got)
	}
	if got.Steps[0].With["once"] != 0 || got.Steps[1].String() != "     44s  step 44 44  once=44" {
		t.Errorf("%v", got)
	}

	if len(p.Steps) != 60 || p.Plan["grace"] != 7 {
		t.Error("the program itself was changed")
	}
	tries := 0
	if Shrink(p, 3, func(Program) bool { tries++; return true }); tries != 3 {
		t.Errorf("%d tries", tries)
	}
}

// Steps happen at their times. Steps that are due after the end do not happen.
func TestFollow(t *testing.T) {
	c := Campaign{
		Draw: func(*rand.Rand) Program {
			return Program{Steps: []Step{{At: 3 * time.Second, Do: "b"}, {At: time.Second, Do: "a"}, {At: time.Minute, Do: "c"}}}
		},
		Run: func(t *Trial) {
			var did []string
			t.Follow(10*time.Second, func(s Step) { did = append(did, s.Do+time.Since(t.Began).String()) })
			if !slices.Equal(did, []string{"a1s", "b3s"}) || time.Since(t.Began) != 10*time.Second {
				t.Errorf("%v", did)
			}
		},
	}
	reached := Counts{}
	if trial := c.run(t, c.Draw(nil).sorted(), reached); trial.violations != nil || reached["a"] != 1 || reached["c"] != 0 {
		t.Errorf("%v, %v", trial.violations, reached)
	}
}

// Two holders of a key at once are a violation, unless the context of the first one has ended, or the first one has
// left.
func TestExclusion(t *testing.T) {
	trial := &Trial{T: t, reached: Counts{}}
	var e Exclusion
	ctx, end := context.WithCancel(t.Context())
	e.Enter(trial, ctx, "key", "first")
	e.Enter(trial, t.Context(), "other key", "first")()
	e.Enter(trial, t.Context(), "other key", "second")
	end()
	e.Enter(trial, t.Context(), "key", "second")
	if len(trial.violations) != 0 || trial.reached["overlap after the end"] != 1 {
		t.Errorf("%v, %v", trial.violations, trial.reached)
	}
	e.Enter(trial, t.Context(), "key", "third")
	if !slices.Equal(trial.violations, []string{"key: second and third at once"}) {
		t.Error(trial.violations)
	}
}

// A violation that is found later stands in the trace where it happened, and the story ends shortly after it.
func TestViolationInThePast(t *testing.T) {
	trial := &Trial{T: t, Began: time.Now().Add(-time.Hour)}
	for i := range 40 {
		trial.addLine(traced{time.Duration(i) * time.Second, fmt.Sprint("line ", i)})
	}
	trial.ViolationAt(trial.Began.Add(35*time.Second), "two holders of %q", "key")

	lines := strings.Split(trial.story(), "\n")
	if len(lines) != 31 || lines[0] != "… 9 lines" {
		t.Errorf("%d lines, the first is %q", len(lines), lines[0])
	}
	if !slices.Equal(lines[27:], []string{"   35.000s  line 35", `   35.000s  VIOLATION two holders of "key"`, "   36.000s  line 36", "   37.000s  line 37"}) {
		t.Error(lines[27:])
	}
	if !slices.Equal(trial.violations, []string{`two holders of "key"`}) {
		t.Error(trial.violations)
	}
}

// A rare event may be missing in the first seeds. More seeds are run until it is reached, but not without end.
func TestRareEventsGetMoreSeeds(t *testing.T) {
	trial := func(_ *testing.T, seed uint64, reached Counts) {
		reached["each"]++
		if seed == *from+170 {
			reached["rare"]++
		}
	}
	run := func(events ...string) (missing []string, ran int) {
		r := &seedRun{trial: trial, total: Counts{}}
		r.runWhile(t, func() bool { return r.begun < 100 })
		missing = r.lookFor(t, events)
		return missing, r.total["each"]
	}

	if missing, ran := run("each"); missing != nil || ran != 100 {
		t.Errorf("missing %v after %d seeds", missing, ran)
	}
	if missing, ran := run("each", "rare"); missing != nil || ran < 171 || ran == 1000 {
		t.Errorf("missing %v after %d seeds", missing, ran)
	}
	if missing, ran := run("rare", "never"); !slices.Equal(missing, []string{"never"}) || ran != 1000 {
		t.Errorf("missing %v after %d seeds", missing, ran)
	}
}
