package schedule

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for systems without zones
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func wantFaults(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want a word about %q", err, word)
		}
	}
}

func TestEvery(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 1500 * time.Millisecond, 7 * time.Second, 90 * time.Second, 25 * time.Hour, 200 * year} {
		next, err := Every(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Time{time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC), epoch, epoch.Add(-1), epoch.Add(-d)} {
			at := next(after)
			if !at.After(after) || at.Sub(after) > d || at.Sub(epoch)%d != 0 {
				t.Errorf("every %v: %v after %v", d, at, after)
			}
		}
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Second - 1} {
		_, err := Every(d)
		wantFaults(t, err, "at least a second")
	}
}

// The local zone is refused, whatever its name. Another zone with the same name is accepted.
func TestCheckZone(t *testing.T) {
	local := time.Local
	time.Local = zone(t, "Europe/Berlin")
	defer func() { time.Local = local }()
	wantFaults(t, CheckZone(nil), "location is nil", "no time zone")
	wantFaults(t, CheckZone(time.Local), "local time zone may differ")
	wantFaults(t, CheckZone(time.FixedZone("Local", 3600)), "local time zone may differ")
	for _, in := range []*time.Location{time.UTC, zone(t, "UTC"), zone(t, "Europe/Berlin"), time.FixedZone("", 3600)} {
		if err := CheckZone(in); err != nil {
			t.Errorf("%v: %v", in, err)
		}
	}
}
