package playground

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

const leads = `[...document.querySelectorAll("#replicas .card")].find(card => card.querySelector("[data-fact=leads]").textContent === "yes")`

// Screenshots for the directory that LOCKKIT_SCREENSHOTS names: make screenshots.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("LOCKKIT_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots takes them")
	}
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "light")
	b.open(p)
	b.await(`document.querySelector('#seen').dataset.leases > 40 && ` + leads + ` !== undefined`)
	leader := value[string](b, leads+".id") // the leader has a lease to lose
	b.press(button(leader, "Pause"))
	b.await(`document.querySelector('#seen').dataset.lost > 0`)
	b.press(button(leader, "Resume"))
	b.press(button("node-3", "Kill"))
	b.press(button("node-1", "Restart empty"))
	b.press(`[data-do=burst_http]`)
	b.await(counter("Updates with the lock") + ` > 200`)
	b.await(green)

	for _, c := range []struct {
		name          string
		width, height int64
		span          string
	}{{"desktop", 1280, 1000, "20"}, {"phone", 390, 844, "10"}} {
		for _, scheme := range []string{"light", "dark"} {
			b.becomes(c.width, c.height, scheme)
			b.show(c.span)
			b.run(`document.activeElement.blur(); window.scrollTo(0, 0)`)
			value[bool](b, `new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true))), 100))`)
			shot, err := patiently(b, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			small := smaller(t, shot)
			if len(small) > 150_000 {
				t.Errorf("%s, %s: %d bytes", c.name, scheme, len(small))
			}
			if err := os.WriteFile(filepath.Join(dir, "playground-"+c.name+"-"+scheme+".png"), small, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// smaller returns the picture with its 256 most frequent colors only. That takes less than half of the space.
func smaller(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	size := full.Bounds()
	counts := map[color.Color]int{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			counts[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	indexed := image.NewPaletted(size, colors[:min(256, len(colors))])
	draw.Draw(indexed, size, full, image.Point{}, draw.Src)
	var small bytes.Buffer
	best := png.Encoder{CompressionLevel: png.BestCompression}
	if err := best.Encode(&small, indexed); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}
