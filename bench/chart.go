package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// A chart is an SVG: lines over the number of goroutines, or bars for each peer.
type chart struct {
	file, title, y string
	names          []string           // of lines, or of the bars of a group
	lines          map[string][]point // by name
	bars           map[string]plotter.Values
	groups         []string
}

// A point is a value over x, and where it was in single rounds.
type point struct{ x, y, low, high float64 }

func newChart(file, title, y string) *chart {
	return &chart{file: file, title: title, y: y, lines: map[string][]point{}, bars: map[string]plotter.Values{}}
}

func (c *chart) add(name string, p point) {
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	c.lines[name] = append(c.lines[name], p)
}

func (c *chart) addBar(name, group string, v float64) {
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	if !slices.Contains(c.groups, group) {
		c.groups = append(c.groups, group)
	}
	c.bars[name] = append(c.bars[name], v)
}

// palette has colours that differ in brightness, too.
var palette = []color.RGBA{
	{R: 0xd5, G: 0x5e, A: 0xff}, {R: 0xe6, G: 0x9f, A: 0xff}, {G: 0x9e, B: 0x73, A: 0xff}, {R: 0xbb, G: 0xbb, B: 0xbb, A: 0xff},
	{R: 0x77, G: 0x77, B: 0x77, A: 0xff}, {R: 0x22, G: 0x22, B: 0x22, A: 0xff}, {B: 0xb2, G: 0x72, A: 0xff}, {R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
}

// colorOf is the same for a peer in all charts.
func colorOf(name string) color.Color {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	return palette[max(i, 0)%len(palette)]
}

// write saves the chart in a directory.
func (c *chart) write(dir string) error {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Padding = vg.Points(8)
	p.Title.Text = c.title
	p.Y.Label.Text = c.y
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	draw := c.drawLines
	if len(c.groups) > 0 {
		draw = c.drawBars
	}
	if err := draw(p); err != nil {
		return fmt.Errorf("%s: %w", c.file, err)
	}
	p.Y.Max *= 1.35 // room for the legend
	return p.Save(8*vg.Inch, 5*vg.Inch, filepath.Join(dir, c.file))
}

func (c *chart) drawLines(p *plot.Plot) error {
	p.X.Label.Text = "goroutines"
	p.X.Scale = plot.LogScale{}
	var ticks []plot.Tick
	for i, name := range c.names {
		points := errorPoints(c.lines[name])
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		spread, err := plotter.NewYErrorBars(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, spread.Color = colorOf(name), colorOf(name), colorOf(name)
		dots.Shape = plotutil.Shape(i)
		line.Width = vg.Points(1.5)
		p.Add(line, dots, spread)
		p.Legend.Add(name, line, dots)
		if i == 0 {
			for _, at := range c.lines[name] {
				ticks = append(ticks, plot.Tick{Value: at.x, Label: fmt.Sprint(at.x)})
			}
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	return nil
}

// errorPoints are points as plotter wants them: with their distances to low and high.
type errorPoints []point

func (e errorPoints) Len() int                { return len(e) }
func (e errorPoints) XY(i int) (x, y float64) { return e[i].x, e[i].y }
func (e errorPoints) YError(i int) (float64, float64) {
	return e[i].y - e[i].low, e[i].high - e[i].y
}

func (c *chart) drawBars(p *plot.Plot) error {
	const width = 24
	for i, name := range c.names {
		bar, err := plotter.NewBarChart(c.bars[name], vg.Points(width))
		if err != nil {
			return err
		}
		bar.Color = palette[2*i]
		bar.LineStyle.Width = 0
		bar.Offset = vg.Points(width * (float64(i) - float64(len(c.names)-1)/2))
		p.Add(bar)
		p.Legend.Add(name, bar)
	}
	p.NominalX(c.groups...)
	return nil
}
