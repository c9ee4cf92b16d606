package playground

import (
	"fmt"
	"strings"
	"testing"
)

const nothingRuns = `document.querySelector('#play [aria-current]') === null`

// play plays a scenario until a condition holds. On a busy machine, a scenario may end without a result. Then play
// plays it again.
func (b *tab) play(scenario, condition string) {
	b.t.Helper()
	const tooBusy = `[...document.querySelectorAll('#log li span')].filter(line => line.textContent.includes('too busy')).length`
	for range 20 {
		before := value[int](b, tooBusy)
		b.press("[data-name=" + scenario + "]")
		b.await(fmt.Sprintf("(%s) || %s > %d && %s", condition, tooBusy, before, nothingRuns))
		if value[bool](b, condition) {
			return
		}
	}
	b.t.Fatalf("scenario %s never had the time it needs", scenario)
}

// The verdict stays green during the faults of the scenario chaos.
func TestChaos(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 390, 844, "dark")
	b.open(p)
	b.press(`[data-name=chaos]`)
	b.await(logged("scenario chaos begins"))
	b.press(`[data-name=fence]`) // refused, because one scenario runs at a time
	b.await(`document.querySelector('#answer').textContent.includes('under way')`)
	b.await(logged("scenario chaos is over") + " || " + red)
	b.await(green + " && document.querySelector('#counters .bad') === null && document.querySelector('#seen').dataset.overlaps === '0'")
}

// With the protection that a scenario needs, the verdict stays green. Without it, the verdict turns red, and is green
// again after a reset.
func TestProtections(t *testing.T) {
	for _, c := range []struct{ scenario, protection, safe, unsafe string }{
		{"guard", "#guard", "b is refused", "two holders at a time"},
		{"fence", "#fencing", "its write is refused", "a stale write of a to fenced was accepted"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			needBrowser(t)
			t.Parallel()
			p := started(t, "127.0.0.1:0")
			b := newTab(t, 1280, 900, "light")
			b.open(p)
			b.show("60")
			b.play(c.scenario, logged(c.safe)+" || "+red)
			b.await(green)
			b.await(logged("scenario "+c.scenario+" is over") + " && " + nothingRuns)

			b.press(c.protection)
			b.await(`document.querySelector('` + c.protection + `').getAttribute('aria-checked') === 'false' && ! document.querySelector('` + c.protection + `').hasAttribute('aria-busy')`)
			b.play(c.scenario, red)
			b.await(logged("VIOLATION") + " && " + logged(c.unsafe))
			// The overlap is visible, because the nodes have forgotten the leader's lease as well.
			if c.scenario == "guard" {
				b.await(`document.querySelector('#seen').dataset.overlaps > 0`)
			}
			b.await(nothingRuns)
			violation := b.text("#verdict-text")
			b.press("#reset")
			b.await(green + ` && document.activeElement.id === 'download'`)
			violationStays(t, b, p, violation)
		})
	}
}

// violationStays looks for a violation that was forgotten: after other things have happened, and after the playground has
// ended and another one has begun.
func violationStays(t *testing.T, b *tab, p *program, what string) {
	t.Helper()
	isListed := fmt.Sprintf(`[...document.querySelectorAll('#violations li')].some(line => line.textContent.includes(%q))`, what)
	isReached := func() {
		t.Helper()
		b.run(`window.scrollTo(0, 0)`)
		b.press("#to-violations")
		b.await(isListed + " && " + isInSight + `(document.querySelector('#violations-title'))`)
	}
	b.press("[data-do=burst_http]")
	isReached()

	b.setOffline(true)
	p.stop()
	b.await(says("#connection", "has ended"))
	isReached()
	if gray := value[string](b, grayOf("#violations")); gray != "none" {
		t.Errorf("the violations have the filter %s", gray)
	}

	again := started(t, strings.TrimPrefix(p.url, "http://"))
	if again.url != p.url {
		t.Fatalf("somebody has taken %s", p.url)
	}
	b.await(says("#connection", "another playground"))
	b.setOffline(false)
	isReached()
}
