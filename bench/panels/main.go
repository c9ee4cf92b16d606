// Panels draws what queries of the dashboard gave, as SVG: "make charts" runs it.
//
//	go run ./panels RESULTS DIR    # RESULTS is a directory of JSON files, one for each panel
//
// It is in this module, which draws charts of benchmarks as well, so that a chart library is a dependency of nothing else.
package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// A panel is what its queries gave.
type panel struct {
	Title, Unit string
	Lines       []line
}

// A line is a series over the seconds since the scene began. Nothing was there at the times that are missing.
type line struct {
	Legend string
	Points [][2]float64
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./panels RESULTS DIR")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "panels:", err)
		os.Exit(1)
	}
}

func drawAll(results, dir string) error {
	files, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no results in %s (%v)", results, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var p panel
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		to := filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".json")+".svg")
		if err := p.draw(to); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
		fmt.Println(to)
	}
	return nil
}

// palette has colours that differ in brightness, too.
var palette = []color.RGBA{
	{B: 0xb2, G: 0x72, A: 0xff}, {R: 0xd5, G: 0x5e, A: 0xff}, {G: 0x9e, B: 0x73, A: 0xff}, {R: 0xe6, G: 0x9f, A: 0xff},
	{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, {R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, {R: 0x77, G: 0x77, B: 0x77, A: 0xff}, {R: 0x22, G: 0x22, B: 0x22, A: 0xff},
}

// Lengths of a chart. A line of the legend takes one.
const (
	width  = 7 * vg.Inch
	height = 2.4 * vg.Inch // without the legend
	entry  = 0.19 * vg.Inch
	frame  = 0.8 * vg.Inch // around what is drawn
)

func (p panel) draw(file string) error {
	plot.DefaultFont.Variant = "Sans"
	lines := p.moving()
	legend := entry * vg.Length(len(lines))
	chart := plot.New()
	chart.Title.Text, chart.Title.Padding = p.Title, vg.Points(8)
	chart.X.Label.Text, chart.Y.Label.Text = "seconds", p.Unit
	chart.Legend.Top, chart.Legend.Left = true, true
	chart.BackgroundColor = color.White
	chart.Add(plotter.NewGrid())
	for i, l := range lines {
		for j, points := range l.pieces() {
			drawn, err := plotter.NewLine(points)
			if err != nil {
				return err
			}
			drawn.Color = palette[i%len(palette)]
			drawn.Width = vg.Points(1.5 + 1.5*float64(len(lines)-1-i)/float64(len(lines))*4) // one that lies on another leaves it seen
			if i >= len(palette) {
				drawn.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
			}
			chart.Add(drawn)
			if j == 0 {
				chart.Legend.Add(l.Legend, drawn)
			}
		}
	}
	chart.X.Min, chart.Y.Min = 0, math.Min(0, chart.Y.Min)
	chart.Y.Max = chart.Y.Min + 1.1*(chart.Y.Max-chart.Y.Min)*float64((height+legend-frame)/(height-frame)) // room for the legend
	return chart.Save(width, height+legend, file)
}

// moving are the lines that are not 0 all the time, unless that is all that there are.
func (p panel) moving() []line {
	moving := slices.DeleteFunc(slices.Clone(p.Lines), func(l line) bool {
		return !slices.ContainsFunc(l.Points, func(p [2]float64) bool { return p[1] != 0 })
	})
	if len(moving) == 0 {
		return p.Lines
	}
	return moving
}

// pieces are the stretches of a line without a gap.
func (l line) pieces() (all []plotter.XYs) {
	for i, p := range l.Points {
		if i == 0 || p[0]-l.Points[i-1][0] > 1.5 {
			all = append(all, nil)
		}
		last := &all[len(all)-1]
		*last = append(*last, plotter.XY{X: p[0], Y: p[1]})
	}
	return all
}
