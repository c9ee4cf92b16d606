package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDrawAll(t *testing.T) {
	results, dir := t.TempDir(), t.TempDir()
	if err := drawAll(results, dir); err == nil {
		t.Error("nothing is drawn, and all is well")
	}
	const result = `{"Title": "Held", "Unit": "s", "Lines": [
		{"Legend": "moves", "Points": [[0, 1], [1, 2], [5, 3], [6, 3]]}, {"Legend": "rests", "Points": [[0, 0], [1, 0]]}]}`
	if err := os.WriteFile(filepath.Join(results, "held.json"), []byte(result), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := drawAll(results, dir); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "held.svg"))
	if err != nil || !strings.Contains(string(svg), ">Held<") || !strings.Contains(string(svg), ">moves<") || strings.Contains(string(svg), ">rests<") {
		t.Errorf("%v: %s", err, svg)
	}
}

func TestGapsAreLeftOut(t *testing.T) {
	l := line{Points: [][2]float64{{0, 1}, {1, 2}, {5, 3}, {6, 3}, {7, 4}}}
	if pieces := l.pieces(); len(pieces) != 2 || len(pieces[0]) != 2 || len(pieces[1]) != 3 {
		t.Errorf("%v", pieces)
	}
}
