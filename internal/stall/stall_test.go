//go:build stalls && linux

package stall

import (
	"testing"
	"time"
	"weak"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LOCKKIT_STALL": "call", "LOCKKIT_STALL_NODE": "1"}
	p, err := parsePlan(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   Point
		node int
		want bool
	}{{Call, 1, true}, {Call, 0, false}, {Call, Anywhere, true}, {Leave, 1, false}} {
		if got := p.includes(c.at, c.node); got != c.want {
			t.Errorf("stops(%s, %d) is %t", c.at, c.node, got)
		}
	}

	for name, value := range map[string]string{"LOCKKIT_STALL": "cal", "LOCKKIT_STALL_NODE": "x", "LOCKKIT_STALL_SHARE": "x", "LOCKKIT_STALL_FOR": "5"} {
		_, err := parsePlan(func(asked string) string {
			if asked == name {
				return value
			}
			return ""
		})
		if err == nil {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
}

// A point stops in real time, but only a limited number of times for one owner.
func TestAt(t *testing.T) {
	before := planned
	defer func() { planned = before }()
	planned, _ = parsePlan(func(name string) string {
		return map[string]string{"LOCKKIT_STALL": "wake", "LOCKKIT_STALL_FOR": "1ms"}[name]
	})

	owner, began := new(int64), time.Now()
	At(Wake, Anywhere, owner)
	if took := time.Since(began); took < time.Millisecond {
		t.Errorf("the point took %v", took)
	}

	for range maxPerOwner {
		At(Wake, Anywhere, owner)
	}
	count, ok := stalls.Load(weak.Make(owner))
	if !ok || count.(interface{ Load() int64 }).Load() != maxPerOwner+1 {
		t.Errorf("the owner's count is %v", count)
	}
}
