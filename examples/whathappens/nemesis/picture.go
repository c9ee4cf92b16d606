package nemesis

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measures of the picture, in pixels.
const (
	chartLeft  = 200
	chartWidth = 1_600
	rowHeight  = 16
	laneHeight = 9
)

// The colours of faults and of clients.
var (
	classColors  = map[class]string{ofServers: "#d62728", ofMemory: "#8c2d8c", ofNetwork: "#e08a00", ofClients: "#555555", ofClocks: "#a8860b"}
	clientColors = map[string]string{"a": "#1f77b4", "b": "#2ca02c", "c": "#17becf", "d": "#7b9fd1"}
)

// A chart draws a part as SVG: time goes from left to right.
type chart struct {
	strings.Builder
	begin, end time.Time
	y          int
}

// picture shows the holders of each key, and the faults above.
func (r result) picture() string {
	if len(r.events) == 0 {
		return "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n"
	}

	c := &chart{begin: r.events[0].At, end: r.events[len(r.events)-1].At, y: 34}
	c.legend(fmt.Sprintf("part %s, seed %d", r.part, r.seed))
	c.faults(r.events)
	c.holders(r.events)
	c.axis()
	height := c.y + 24
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n", chartLeft+chartWidth+20, height, c.String())
}

func (c *chart) x(t time.Time) float64 {
	return chartLeft + chartWidth*float64(t.Sub(c.begin))/float64(max(1, c.end.Sub(c.begin)))
}

func (c *chart) text(x float64, y int, text string) {
	fmt.Fprintf(c, "<text x=\"%.0f\" y=\"%d\">%s</text>\n", x, y, html.EscapeString(text))
}

// legend explains the colours.
func (c *chart) legend(title string) {
	c.text(8, 14, title)
	x := 8.0
	entry := func(name, color string) {
		fmt.Fprintf(c, "<rect x=\"%.0f\" y=\"20\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x, color)
		c.text(x+14, 29, name)
		x += 30 + 7*float64(len(name))
	}

	for _, name := range clientNames {
		entry("held by "+name, clientColors[name])
	}

	for _, of := range slices.Sorted(maps.Keys(classColors)) {
		entry("fault of "+string(of), classColors[of])
	}
}

// faults draws each fault in the first lane that is free.
func (c *chart) faults(events []event) {
	var lanes []time.Time // until when each is taken
	top := c.y + 8

	for _, e := range sortedByStart(events, isHealed) {
		lane := slices.IndexFunc(lanes, func(until time.Time) bool { return until.Before(e.Asked) })
		if lane < 0 {
			lane = len(lanes)
			lanes = append(lanes, time.Time{})
		}
		lanes[lane] = e.At
		width := max(2, c.x(e.At)-c.x(e.Asked))
		fmt.Fprintf(c, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n",
			c.x(e.Asked), top+lane*laneHeight, width, laneHeight-2, classColors[class(e.Key)], html.EscapeString(e.Work+e.Text))
	}

	c.text(8, top+9, "faults")
	c.y = top + len(lanes)*laneHeight + 10
}

// sortedByStart returns events of a kind in the order of Asked.
func sortedByStart(events []event, of kind) (found []event) {
	for _, e := range events {
		if e.Kind == of {
			found = append(found, e)
		}
	}

	slices.SortStableFunc(found, func(a, b event) int { return a.Asked.Compare(b.Asked) })
	return found
}

// holders draws a row for each key, with a bar for each lease. The keys of all minutes share a row: those of odd minutes have
// its lower half, so that leases on two keys do not look like two on one. One path has all bars of a client in a row, to keep
// the file small.
func (c *chart) holders(events []event) {
	rows := map[string]map[string]*strings.Builder{}

	for _, e := range events {
		if e.Kind != isGranted {
			continue
		}
		row, minute, _ := strings.Cut(e.Key, "@")
		below := 0
		if n, err := strconv.Atoi(minute); err == nil && n%2 == 1 {
			below = rowHeight / 2
		}
		if rows[row] == nil {
			rows[row] = map[string]*strings.Builder{}
		}
		client := e.By[:1]
		if rows[row][client] == nil {
			rows[row][client] = &strings.Builder{}
		}
		fmt.Fprintf(rows[row][client], "M%.1f %dh%.1f", c.x(e.At), below, max(0.6, c.x(e.Until)-c.x(e.At)))
	}

	for _, row := range slices.Sorted(maps.Keys(rows)) {
		c.text(8, c.y+11, shorten(row))
		for _, client := range slices.Sorted(maps.Keys(rows[row])) {
			fmt.Fprintf(c, "<path transform=\"translate(0 %d)\" stroke=\"%s\" stroke-width=\"%d\" d=\"%s\"/>\n",
				c.y+rowHeight/4, clientColors[client], rowHeight/2-2, rows[row][client])
		}
		c.y += rowHeight
	}
}

// shorten leaves the end of a name, which tells keys of adapters apart.
func shorten(name string) string {
	const most = 28
	if len(name) <= most {
		return name
	}

	return "…" + name[len(name)-most:]
}

// axis writes times below.
func (c *chart) axis() {
	const marks = 10
	span := c.end.Sub(c.begin)

	for i := range marks + 1 {
		at := c.begin.Add(span * time.Duration(i) / marks)
		c.text(c.x(at)-10, c.y+14, at.Sub(c.begin).Round(time.Second).String())
	}
}
