package main

import (
	"math"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	table := table{head: []string{"n", "peer", "µs"}, text: 1}
	table.add("1", "a", "5")
	table.add("128", "longer", "12.5")
	const want = `
|   n | peer   |   µs |
| --: | ------ | ---: |
|   1 | a      |    5 |
| 128 | longer | 12.5 |
`
	if got := "\n" + table.String(); got != want {
		t.Errorf("got:%s", got)
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		rate(0): "0", rate(999): "999", rate(12_345): "12.3k", rate(123_456): "123k", rate(math.NaN()): "–", rate(math.Inf(1)): "–",
		times(1.239): "1.24×", times(math.NaN()): "–",
		short(0): "–", short(250): "0.25 µs", short(9_996): "10.0 µs", short(99_960): "100 µs", short(1_500_000): "1.50 ms",
		short(90 * time.Second): "90.0 s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
