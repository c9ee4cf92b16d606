package playground

import (
	"fmt"
	"testing"
)

// isInSight is a function of the page: whether an element is in the window, and nothing covers it.
const isInSight = `(node => {
	const box = node.getBoundingClientRect(), on = document.elementFromPoint(box.left + 2, box.top + 2);
	return node.contains(on) && node.contains(document.elementFromPoint(box.left + 2, box.bottom - 2));
})`

// paintedPage is a promise that is kept when the page has been laid out anew.
const paintedPage = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`

// A heading is in sight when it is scrolled to, by a link or otherwise, with the highest header that there is, and when
// the header grows.
func TestHeadings(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	for _, c := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 900}, {"phone", 360, 740}} {
		b := newTab(t, c.width, c.height, "light")
		b.open(p)
		b.await(`document.querySelector('#histogram canvas') && document.querySelectorAll('#nodes .card').length === 5`)
		headingsInSight(t, b, c.name)
	}

	// An ended playground sends no state any more, so the verdict stays as the test sets it.
	for _, c := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 900}, {"phone", 360, 740}} {
		p := started(t, "127.0.0.1:0")
		b := newTab(t, c.width, c.height, "light")
		b.open(p)
		b.await(`document.querySelector('#histogram canvas') && document.querySelectorAll('#nodes .card').length === 5`)
		b.setOffline(true)
		p.stop()
		b.await(says("#connection", "has ended"))

		before := value[float64](b, headerHeight)
		hidden := value[[]string](b, fmt.Sprintf(`(async () => {
			const { showVerdict } = await import('/static/verdict.js');
			const { showViolations } = await import('/static/violations.js');
			const hidden = [];
			for (const section of document.querySelectorAll('#play, #counters')) { // below which the page goes on
				showVerdict({ verdict: { ok: true, text: '' }, unsafe: {} });
				await %[1]s;
				location.hash = section.id;
				await %[1]s;
				const verdict = { ok: false, text: 'two holders at a time of leader-of-the-hour: a with token 1 and b with token 2. '.repeat(3) };
				showVerdict({ verdict, unsafe: { guard: true, fencing: true } });
				showViolations({ now: Date.now(), verdict });
				await %[1]s;
				if (!%[2]s(section.querySelector('h2'))) hidden.push(section.id);
			}
			return hidden;
		})()`, paintedPage, isInSight))
		if len(hidden) > 0 {
			t.Errorf("%s: the header that grows hides the headings of %q", c.name, hidden)
		}
		if after := value[float64](b, headerHeight); after <= before {
			t.Errorf("%s: the header did not grow: from %v to %v", c.name, before, after)
		}
		headingsInSight(t, b, c.name+", ended, with a violation")
	}
}

const headerHeight = `document.querySelector('#top').offsetHeight`

// headingsInSight follows a link to each section, and scrolls to each heading. A page that is told a new state between the
// scrolling and the look may have grown above the heading, so a heading is hidden if it is each time.
func headingsInSight(t *testing.T, b *tab, name string) {
	t.Helper()
	hidden := value[[]string](b, fmt.Sprintf(`(async () => {
		const hidden = [], isInSight = %[2]s;
		const look = async (heading, how, scroll) => {
			for (let tries = 0; tries < 20; tries++) {
				scroll();
				await %[1]s;
				if (isInSight(heading)) return;
			}
			hidden.push(how + heading.textContent);
		};
		for (const heading of [...document.querySelectorAll('main h2, main h3')].filter(node => node.checkVisibility())) {
			const section = heading.closest('section');
			if (heading.matches('h2')) {
				await look(heading, 'by a link: ', () => {
					location.hash = '';
					location.hash = section.id;
				});
			}
			await look(heading, 'scrolled to: ', () => {
				scrollTo(0, 0);
				heading.scrollIntoView();
			});
		}
		return hidden;
	})()`, paintedPage, isInSight))
	if len(hidden) > 0 {
		t.Errorf("%s: hidden: %q", name, hidden)
	}
}
