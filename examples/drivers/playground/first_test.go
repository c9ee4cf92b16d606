package playground

import "testing"

// A new visitor presses the first button. The leader dies, an arrow points to the change, and another replica leads.
// Then the button starts the dead replica again.
func TestFirst(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "light")
	b.open(p)
	const (
		says    = `document.querySelector('#first-text').textContent`
		offers  = `document.querySelector('#first-button').textContent`
		enabled = `document.querySelector('#first-button').getAttribute('aria-disabled') === 'false'`
		marks   = `document.querySelector('#seen').dataset.marks`
	)
	b.await(enabled + " && " + says + `.includes('kill it')`)
	if top := value[bool](b, `document.querySelector('#first-button').getBoundingClientRect().bottom < 300`); !top {
		t.Error("the first button is not at the top of the page")
	}
	for range 2 {
		// The leader may change between a look and a press, so the page presses while it looks.
		b.await(enabled + " && " + offers + ` === 'Kill the leader' && (document.querySelector('#first-button').click(), true)`)
		b.await(`(` + says + `.includes('is dead') || ` + says + `.includes('took over')) && ` + marks + ` === '1'`)
		b.await(says + `.includes('took over') && ` + offers + `.startsWith('Start replica')`)
		b.await(leads + ` !== undefined`)
		b.press("#first-button")
		b.await(marks + ` === '0' && ` + offers + ` === 'Kill the leader'`)
		b.await(green)
	}
}
