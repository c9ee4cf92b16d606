package history

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// step is one recorded call, so that a history can be altered before it is recorded.
type step struct {
	what   string
	key    string
	holder string
	token  uint64
	at     int
	ok     bool
}

func play(steps []step) *History {
	var h History
	for _, s := range steps {
		switch s.what {
		case "attempt":
			h.Attempt(s.key, s.holder, at(s.at))
		case "granted":
			h.Granted(s.key, s.holder, s.token, at(s.at))
		case "ended":
			h.Ended(s.key, s.holder, s.token, at(s.at))
		case "lost":
			h.Lost(s.key, s.holder, s.token, at(s.at))
		case "wrote":
			h.Wrote(s.key, s.token, at(s.at), s.ok)
		case "completed":
			h.Completed(s.key, s.holder, s.token, at(s.at))
		case "seen":
			h.SeenDone(s.key, s.token, at(s.at))
		case "forget":
			h.Forget(s.key, at(s.at))
		}
	}
	return &h
}

// legal makes up a history of one key with four holders, as a correct lock could produce it.
func legal(r *rand.Rand, key string) []step {
	var (
		steps  []step
		now    int
		token  uint64
		fence  uint64
		tokens []uint64
	)
	add := func(what, holder string, token uint64, at int, ok bool) {
		steps = append(steps, step{what, key, holder, token, at, ok})
	}

	holders := []string{"a", "b", "c", "d"}
	waiting := make(map[string]bool)
	marked := r.IntN(4) > 0

	for range 5 + r.IntN(20) {
		for _, name := range holders {
			if marked && !waiting[name] && r.IntN(2) == 0 {
				waiting[name] = true
				add("attempt", name, 0, now, false)
				now += r.IntN(2)
			}
		}

		name := holders[r.IntN(len(holders))]
		if marked && !waiting[name] {
			add("attempt", name, 0, now, false)
		}
		delete(waiting, name)
		token += 1 + r.Uint64N(3)
		tokens = append(tokens, token)
		add("granted", name, token, now, false)
		for range r.IntN(4) {
			now += r.IntN(3)
			by := tokens[r.IntN(len(tokens))]
			fence = max(fence, by)
			add("wrote", "", by, now, by == fence)
		}

		now += 1 + r.IntN(5)
		switch r.IntN(4) {
		case 0:
			add("completed", name, token, now, false)
			for range r.IntN(3) {
				now += r.IntN(2)
				add("seen", "", token, now, false)
			}
			now++
			add("forget", "", 0, now, false)
			clear(waiting) // these attempts have ended, because the key is done
		case 1:
			add("lost", name, token, now, false)
		default:
			add("ended", name, token, now, false)
		}
		now += r.IntN(2)
	}
	return steps
}

// interleave mixes two histories and keeps the order within each.
func interleave(r *rand.Rand, a, b []step) []step {
	var out []step
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && r.IntN(2) == 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// indices returns the indices of the steps of the given kinds. If next is not empty, a step of the kind next must
// follow.
func indices(steps []step, next string, kinds ...string) (found []int) {
	for i, s := range steps {
		follows := next == "" || slices.ContainsFunc(steps[i+1:], func(o step) bool { return o.what == next })
		if follows && slices.Contains(kinds, s.what) {
			found = append(found, i)
		}
	}
	return found
}

// mutations turn a legal history of one key into an illegal one. They return rules, of which one must be reported, or
// nil if they do not apply.
var mutations = map[string]func(r *rand.Rand, s []step) ([]step, []string){
	"end forgotten": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "granted", "ended", "lost")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		return slices.Delete(s, i, i+1), []string{ruleOverlap}
	},
	"trusted too long": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "granted", "ended", "lost")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		n := i + slices.IndexFunc(s[i:], func(o step) bool { return o.what == "granted" })
		s[i].at = s[n].at + 1
		return s, []string{ruleOverlap}
	},
	"token of an earlier lease": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "granted", "granted")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		n := i + 1 + slices.IndexFunc(s[i+1:], func(o step) bool { return o.what == "granted" })
		old, reused := s[n].token, s[i].token
		for j := range s {
			if s[j].token == old && s[j].what != "wrote" {
				s[j].token = reused
			}
		}
		return s, []string{ruleDuplicate}
	},
	"tokens out of order": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "granted", "granted")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		n := i + 1 + slices.IndexFunc(s[i+1:], func(o step) bool { return o.what == "granted" })
		first, second := s[i].token, s[n].token
		for j := range s {
			switch {
			case s[j].what == "wrote":
			case s[j].token == first:
				s[j].token = second
			case s[j].token == second:
				s[j].token = first
			}
		}
		return s, []string{ruleOrder, ruleLinear}
	},
	"resource does not check": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "", "wrote")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		s[i].ok = !s[i].ok
		return s, []string{ruleFence}
	},
	"completion not seen": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "granted", "forget")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		return slices.Delete(s, i, i+1), []string{ruleRegrant}
	},
	"second completion": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "", "completed")
		if len(is) == 0 {
			return s, nil
		}
		i := is[r.IntN(len(is))]
		second := s[i]
		second.holder, second.token = "z", s[i].token+1
		return slices.Insert(s, i+1, second), []string{ruleCompleted}
	},
	"done by somebody else": func(r *rand.Rand, s []step) ([]step, []string) {
		is := indices(s, "", "seen")
		if len(is) == 0 {
			return s, nil
		}
		s[is[r.IntN(len(is))]].token++
		return s, []string{ruleSeenDone}
	},
}

func TestHistoryRandom(t *testing.T) {
	caught := make(map[string]int)
	for seed := range uint64(300) {
		generate := func() (*rand.Rand, []step, []step) {
			r := rand.New(rand.NewPCG(seed, 1))
			return r, legal(r, "k"), legal(r, "l")
		}
		r, a, b := generate()
		if err := play(interleave(r, a, b)).Check(); err != nil {
			t.Fatalf("seed %d: legal history refused: %v", seed, err)
		}
		for name, mutate := range mutations {
			r, a, b := generate()
			a, want := mutate(r, a)
			if want == nil {
				continue
			}
			err := play(interleave(r, a, b)).Check()
			got := rules(t, err)
			if !slices.ContainsFunc(want, func(rule string) bool { return slices.Contains(got, rule) }) {
				t.Fatalf("seed %d, %s: violated %q, want one of %q\n%v", seed, name, got, want, err)
			}
			caught[name]++
		}
	}
	for name := range mutations {
		if caught[name] < 30 {
			t.Errorf("mutation %q applied only %d times", name, caught[name])
		}
	}
}
