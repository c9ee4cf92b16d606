package playground

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Conditions on what the page shows.
func nodeIs(i int, state string) string {
	return fmt.Sprintf(`document.querySelector('#node-%d').dataset.state === %q`, i, state)
}

func replicaIs(name, state string) string {
	return fmt.Sprintf(`document.querySelector('#replica-%s').dataset.state === %q`, name, state)
}

func fact(card, name, like string) string {
	return fmt.Sprintf(`/%s/.test(document.querySelector('#%s [data-fact=%q]').textContent)`, like, card, name)
}

func logged(like string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#log li span')].some(line => line.textContent.includes(%q))`, like)
}

const (
	green = `document.querySelector('#verdict').dataset.ok === 'true'`
	red   = `document.querySelector('#verdict').dataset.ok === 'false'`
)

func says(selector, text string) string {
	return fmt.Sprintf(`document.querySelector(%q).textContent.includes(%q)`, selector, text)
}

// grayOf is the filter that an element is shown with.
func grayOf(selector string) string {
	return fmt.Sprintf(`getComputedStyle(document.querySelector(%q)).filter`, selector)
}

func button(card, name string) string { return fmt.Sprintf(`#%s button[data-name="%s"]`, card, name) }

func counter(name string) string {
	return fmt.Sprintf(`Number(document.querySelector('#counters tr[data-name="%s"] .number').textContent)`, name)
}

// Properties of the page that hold whatever happens on it. The subtests run in order, on one playground.
func TestPage(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "light")
	b.open(p)

	t.Run("the timeline fills", func(t *testing.T) {
		b.show("60") // a busy machine shows fewer leases
		defer b.show("20")
		b.await(`document.querySelector('#seen').dataset.leases > 20 && document.querySelector('#seen').dataset.keys > 5`)
		b.await(`(() => { // bars of each replica
			const canvas = document.querySelector('#canvas'), style = getComputedStyle(document.documentElement);
			const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
			const seen = new Set();
			for (let i = 0; i < pixels.length; i += 4) seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
			return ['--a', '--b', '--c'].every(name => seen.has(parseInt(style.getPropertyValue(name).trim().slice(1), 16)));
		})()`)
		b.await(`document.querySelector('#histogram canvas') && document.querySelector('#p99').textContent.includes('s')`)
	})
	t.Run("space pauses", func(t *testing.T) { spacePauses(b) })
	t.Run("buttons have names, and are reached in order", func(t *testing.T) { keyboard(t, b) })
	t.Run("nothing is wider than a phone", func(t *testing.T) { narrow(t, b) })
	t.Run("contrast and colours", func(t *testing.T) { colours(t, b) })
	t.Run("an hour of bursts", func(t *testing.T) { hour(t, b) })
	t.Run("a lease as it was then", func(t *testing.T) { then(t, b) })
	t.Run("a semaphore has a lane for each slot", func(t *testing.T) { slots(t, b) })
	t.Run("a clock that is right again", func(t *testing.T) { undone(t, b) })
	t.Run("what events say is no markup", func(t *testing.T) { escaped(t, b) })
	t.Run("the download", func(t *testing.T) {
		n := value[int](b, `fetch(document.querySelector('#download').href).then(r => r.text()).then(text => text.trim().split('\n').map(JSON.parse).filter(e => e.kind).length)`)
		if n < 20 {
			t.Errorf("%d events", n)
		}
	})
	policy := value[string](b, `fetch('/').then(r => r.headers.get('Content-Security-Policy'))`)
	if !strings.Contains(policy, "default-src 'self';") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy: %s", policy)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requests {
		if !strings.HasPrefix(url, p.url) && !strings.HasPrefix(url, "data:") {
			t.Errorf("it asks for %s", url)
		}
	}
}

func spacePauses(b *tab) {
	seen := `document.querySelector('#seen').textContent`
	b.do(chromedp.Focus(chromedp.CSS("#lanes")), chromedp.KeyEvent(" "))
	b.await(`document.querySelector('#pause').getAttribute('aria-pressed') === 'true' && ` + seen + `.startsWith('Paused')`)
	b.do(chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(" "))
	b.await(`document.querySelector('#pause').getAttribute('aria-pressed') === 'false' && !` + seen + `.startsWith('Paused')`)
	// On a button, space presses the button.
	b.do(chromedp.Focus(chromedp.CSS("#pause")), chromedp.KeyEvent(" "))
	b.await(`document.querySelector('#pause').textContent === 'Go on'`)
	b.press("#pause")
	b.await(`document.querySelector('#pause').textContent === 'Pause'`)
}

// keyboard goes through the page with the tab key.
func keyboard(t *testing.T, b *tab) {
	const all = `[...document.querySelectorAll('a[href], button, select, [tabindex]')].filter(node => node.checkVisibility())`
	if nameless := value[[]string](b, all+`.filter(node => !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)).map(node => node.outerHTML)`); len(nameless) > 0 {
		t.Errorf("without a name: %q", nameless)
	}
	if twice := value[[]string](b, `(() => {
		const names = [...document.querySelectorAll('button')].map(node => node.getAttribute('aria-label') || node.textContent);
		return names.filter((name, i) => names.indexOf(name) !== i);
	})()`); len(twice) > 0 {
		t.Errorf("two buttons of one name: %q", twice)
	}
	n := value[int](b, all+".length")
	b.run(all + `[0].focus()`)
	for i := 1; i < n; i++ {
		b.do(chromedp.KeyEvent(kb.Tab))
		got := value[string](b, `(() => {
			const all = `+all+`, on = document.activeElement, style = getComputedStyle(on);
			return all.indexOf(on) !== `+fmt.Sprint(i)+` ? 'out of order: ' + on.outerHTML : style.outlineStyle === 'none' ? 'the focus is not visible: ' + on.outerHTML : '';
		})()`)
		if got != "" {
			t.Fatalf("stop %d of %d: %s", i, n, got)
		}
	}
}

func narrow(t *testing.T, b *tab) {
	b.becomes(360, 740, "light")
	defer b.becomes(1280, 900, "light")
	b.await(`document.querySelector('#canvas').clientWidth < 360`)
	b.await(`document.querySelector('#histogram canvas').clientWidth < 360`)
	if wide := value[[]string](b, `document.documentElement.scrollWidth <= 360 ? [] :
		[...document.querySelectorAll('body *')].filter(node => node.getBoundingClientRect().right > 360).map(node => node.outerHTML.slice(0, 100))`); len(wide) > 0 {
		t.Errorf("wider than 360 px: %q", wide)
	}
	if top := value[float64](b, `document.querySelector('#top').getBoundingClientRect().height`); top > 740/3 {
		t.Errorf("what is always in sight takes %v px of a phone's 740", top)
	}
}

// hour feeds the timeline with an hour of 250 leases a second, and looks at it once a minute.
func hour(t *testing.T, b *tab) {
	kept := value[[]int](b, `(async () => {
		const { Leases, overlaps } = await import('/static/leases.js');
		const { Faults } = await import('/static/faults.js');
		const leases = new Leases(), faults = new Faults();
		let most = 0, mostFaults = 0, token = 0, wrong = 0;
		for (let second = 0; second < 3600; second++) {
			for (let i = 0; i < 250; i++) {
				const at = 1000 * second + 4 * i, replica = 'abc'[i % 3], key = 'counter 0';
				token++;
				leases.add({ kind: 'grant', at, replica, key, token, until: at + 2500 });
				if (token % 1000) leases.add({ kind: 'end', at: at + 3, replica, key, token }); // the others are never heard of again
				most = Math.max(most, leases.all.length + leases.openCount);
			}
			faults.add({ kind: second % 2 ? 'started' : 'killed', replica: 'a', at: 1000 * second });
			faults.add({ kind: 'node_flushed', node: 1, at: 1000 * second });
			mostFaults = Math.max(mostFaults, faults.all.length);
			if (second % 60 === 0) {
				leases.forget(1000 * second - 130000);
				for (const lane of leases.within(1000 * second - 20000, 1000 * second).lanes) wrong += overlaps(lane.leases, 1000 * second).length;
			}
		}
		return [most, mostFaults, document.querySelectorAll('#log li').length];
	})()`)
	for i, most := range []int{2*4000 + 100, 401, 100} {
		if kept[i] > most {
			t.Errorf("kept: %v, at most %d", kept, most)
		}
	}
}

// then looks at a lease at a time before its end, because the timeline is a moment behind and can be moved back.
func then(t *testing.T, b *tab) {
	seen := value[string](b, `(async () => {
		const { Leases, endOf, isHeld, isLost } = await import('/static/leases.js');
		const leases = new Leases();
		leases.add({ kind: 'grant', at: 1000, replica: 'a', key: 'k', token: 1, until: 3000 });
		leases.add({ kind: 'lost', at: 2000, replica: 'a', key: 'k', token: 1, text: 'taken' });
		return [1500, 2500].map(at => [endOf(leases.all[0], at), isHeld(leases.all[0], at), isLost(leases.all[0], at)]).join(' ');
	})()`)
	if want := "1500,true,false 2000,false,true"; seen != want {
		t.Errorf("end, held, lost: %s, want %s", seen, want)
	}
}

// slots looks at the lanes of a semaphore: two holders of two slots do not overlap, two of one slot do. Then it waits until
// replicas have held both slots of the playground's own.
func slots(t *testing.T, b *tab) {
	seen := value[string](b, `(async () => {
		const { Leases, overlaps } = await import('/static/leases.js');
		const leases = new Leases();
		for (const [replica, slot, token, at] of [['a', 0, 7, 1000], ['b', 1, 7, 1100], ['c', 1, 8, 1200]])
			leases.add({ kind: 'grant', at, replica, key: 'api', slot, token, until: at + 9000 });
		leases.add({ kind: 'end', at: 1900, replica: 'a', key: 'api', slot: 0, token: 7 });
		return leases.within(0, 5000).lanes.map(lane => [lane.key, lane.leases.length, overlaps(lane.leases, 5000).length, lane.leases[0].end]).join(' ');
	})()`)
	if want := "api slot 0,1,0,1900 api slot 1,2,1,0"; seen != want {
		t.Errorf("lanes: %s, want %s", seen, want)
	}
	for _, slot := range []string{"payments-api slot 0", "payments-api slot 1"} {
		b.await(fmt.Sprintf(`[...document.querySelectorAll('#replicas [data-fact=holds]')].some(fact => fact.textContent.includes(%q))`, slot))
	}
}

// undone checks the name of the end of a skew. That event has no number, because 0 is left out.
func undone(t *testing.T, b *tab) {
	said := value[string](b, `(async () => {
		const { nameOf } = await import('/static/faults.js');
		return [500, -500, undefined].map(ms => nameOf({ kind: 'skewed', replica: 'a', ms })).join(', ');
	})()`)
	if want := "a’s clock +500 ms, a’s clock -500 ms, a’s clock right"; said != want {
		t.Errorf("says %q, want %q", said, want)
	}
}

// escaped gives the page events with markup in each text. The page must escape it.
func escaped(t *testing.T, b *tab) {
	said := value[string](b, `(async () => {
		const { note, showLog } = await import('/static/log.js');
		const { hear } = await import('/static/play.js');
		const bad = '<img src=x onerror=alert(1)>';
		for (const kind of ['scene', 'error', 'verdict', 'lost', 'refused', 'burst', 'scenario', 'mode']) {
			const event = { kind, at: Date.now(), replica: bad, key: bad, text: bad };
			hear(event);
			note(event);
		}
		showLog();
		return document.querySelector('#scene').innerHTML + document.querySelector('#log ol').innerHTML;
	})()`)
	if !strings.Contains(said, "&lt;img") || strings.Contains(said, "<img") {
		t.Errorf("the page has %s", said)
	}
}

// The page shows that the connection is lost, and reconnects by itself.
func TestReconnects(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "dark")
	b.open(p)
	b.await(`document.querySelector('#connection').dataset.state === 'live'`)
	b.await(says("#ttl", "2.5 s") + " && " + says("#ends", "ends with Ctrl-C") + " && " + says("#ends", "Without a terminal"))
	if gray := value[string](b, grayOf("#timeline")+" + "+grayOf("#verdict")); gray != "nonenone" {
		t.Errorf("a live page has the filters %s", gray)
	}
	b.setOffline(true)
	p.stop()
	b.await(`document.querySelector('#connection').dataset.state === 'lost'`)
	b.await(says("#connection", "The playground has ended") + " && " + says("#connection", "what it told until"))
	b.await(grayOf("#timeline") + `.includes('grayscale(1)') && ` + grayOf("#verdict") + `.includes('grayscale(1)')`)
	b.run(`window.scrollTo(0, document.body.scrollHeight)`)
	if top := value[float64](b, `document.querySelector('#connection').getBoundingClientRect().top`); top < 0 {
		t.Error("that it has ended is out of sight")
	}
	b.press(button("node-0", "Kill"))
	b.await(`document.querySelector('#answer').textContent.includes('does not answer')`)
	again := started(t, strings.TrimPrefix(p.url, "http://"))
	if again.url != p.url {
		t.Fatalf("somebody has taken %s", p.url)
	}
	b.await(`document.querySelector('#connection').dataset.state === 'live' && document.querySelector('#seen').dataset.leases > 5`)
	b.await(says("#connection", "another playground") + " && " + grayOf("#timeline") + ` === 'none'`)
	b.setOffline(false)
	b.await(green)

	// A connection that hangs is given up. An event that is sent again is not shown twice, because it would look like
	// two holders.
	again.freeze()
	b.await(`document.querySelector('#connection').dataset.state === 'lost'`)
	again.thaw()
	b.show("60")
	b.await(`document.querySelector('#connection').dataset.state === 'live' && document.querySelector('#seen').dataset.leases > 20`)
	b.await(says("#connection", "the same playground goes on"))
	b.await(green + ` && document.querySelector('#seen').dataset.overlaps === '0'`)
}
