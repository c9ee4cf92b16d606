package playground

import (
	"math"
	"slices"
	"strconv"
	"testing"
)

// colours checks the colors of both schemes. Text has the contrast that WCAG 2.2 AA requires, 4.5, and bars have 3. The
// bars of replicas and the red of losses differ for every color vision.
func colours(t *testing.T, b *tab) {
	for _, scheme := range []string{"light", "dark"} {
		b.becomes(1280, 900, scheme)
		c := value[map[string]string](b, `(() => {
			const style = getComputedStyle(document.documentElement);
			return Object.fromEntries(['page', 'card', 'text', 'muted', 'edge', 'focus', 'good', 'good-page', 'bad', 'bad-page', 'warn', 'warn-page', 'a', 'on-a', 'b', 'on-b', 'c', 'on-c']
				.map(name => [name, style.getPropertyValue('--' + name).trim()]));
		})()`)

		for _, pair := range [][2]string{{"text", "card"}, {"text", "page"}, {"muted", "card"}, {"muted", "page"}, {"good", "card"}, {"good", "good-page"},
			{"bad", "card"}, {"bad", "bad-page"}, {"warn", "card"}, {"warn", "warn-page"}, {"on-a", "a"}, {"on-b", "b"}, {"on-c", "c"}} {
			if got := contrast(c[pair[0]], c[pair[1]]); got < 4.5 {
				t.Errorf("%s: %s on %s: %.2f", scheme, pair[0], pair[1], got)
			}
		}
		for _, bar := range []string{"a", "b", "c", "edge", "focus"} {
			if got := contrast(c[bar], c["card"]); got < 3 {
				t.Errorf("%s: %s on a card: %.2f", scheme, bar, got)
			}
		}

		for vision, sees := range visions {
			bars := []string{"a", "b", "c", "bad"}
			for i, x := range bars {
				for _, y := range bars[i+1:] {
					if got := distance(sees.of(c[x]), sees.of(c[y])); got < 25 {
						t.Errorf("%s, %s: %s and %s: %.0f", scheme, vision, x, y, got)
					}
				}
			}
		}
	}
	b.becomes(1280, 900, "light")
}

// A vision maps linear red, green and blue to what a person with that color vision sees, after Machado, Oliveira and
// Fernandes (2009), at full severity.
type vision [3][3]float64

var visions = map[string]vision{
	"all colours":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}},
	"deuteranopia": {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}},
	"tritanopia":   {{1.255528, -.076749, -.178779}, {-.078411, .930809, .147602}, {.004733, .691367, .303900}},
}

func (v vision) of(color string) (seen [3]float64) {
	c := linear(color)
	for i, row := range v {
		seen[i] = min(1, max(0, row[0]*c[0]+row[1]*c[1]+row[2]*c[2]))
	}
	return seen
}

// linear returns a color such as #0072b2 in linear light.
func linear(color string) (c [3]float64) {
	n, err := strconv.ParseUint(color[1:], 16, 32)
	if err != nil {
		panic(err)
	}
	for i := range c {
		x := float64(n>>(16-8*i)&0xff) / 255
		if c[i] = x / 12.92; x > .04045 {
			c[i] = math.Pow((x+.055)/1.055, 2.4)
		}
	}
	return c
}

func luminance(c [3]float64) float64 { return .2126*c[0] + .7152*c[1] + .0722*c[2] }

// contrast returns the contrast ratio of WCAG.
func contrast(x, y string) float64 {
	l := []float64{luminance(linear(x)), luminance(linear(y))}
	slices.Sort(l)
	return (l[1] + .05) / (l[0] + .05)
}

// distance returns the distance of CIE 1976 in L*a*b*. A distance of some 2 is just visible.
func distance(x, y [3]float64) float64 {
	p, q := lab(x), lab(y)
	return math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2])
}

func lab(c [3]float64) [3]float64 {
	f := func(t float64) float64 {
		if t > .008856 {
			return math.Cbrt(t)
		}
		return 7.787*t + 16.0/116
	}
	x := f((.4124*c[0] + .3576*c[1] + .1805*c[2]) / .95047)
	y := f(luminance(c))
	z := f((.0193*c[0] + .1192*c[1] + .9505*c[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}
