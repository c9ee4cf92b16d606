package main

import (
	"testing"
	"time"
)

func TestBrief(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 1500: "2µs", 800 * time.Microsecond: "800µs", 12345 * time.Microsecond: "12.3ms", 9876 * time.Millisecond: "9.9s", -2 * time.Second: "-2s",
		10 * time.Second: "10s", 59960 * time.Millisecond: "1m", 70 * time.Second: "1m10s", time.Hour: "1h", time.Hour + 30*time.Second: "1h0m30s",
		90 * time.Minute: "1h30m", 72 * time.Hour: "3 days", 100 * time.Minute: "1h40m", 20 * time.Minute: "20m",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"order:42": "order:42", "a b": `"a b"`, "": `""`, "\x1b[2J": `"\x1b[2J"`, "ключ": "ключ", "\xff": `"\xff"`, `q"`: `"q\""`} {
		if got := plain(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
