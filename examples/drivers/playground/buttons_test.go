package playground

import (
	"fmt"
	"testing"
)

// The effect of each button shows on the page, and the verdict stays green.
func TestButtons(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "light")
	b.open(p)

	// The quarantine of an emptied node may end before the test looks, so an observer in the page records it.
	b.run(`window.quarantined = false;
		const guard = document.querySelector('#node-2 [data-fact="guard"]');
		new MutationObserver(() => { window.quarantined ||= guard.textContent.includes('quarantined'); }).observe(guard, { childList: true, characterData: true, subtree: true })`)
	for _, step := range []struct{ press, shows string }{
		{button("node-0", "Kill"), nodeIs(0, "down") + " && " + logged("node 0 killed")},
		{button("node-0", "Start"), nodeIs(0, "up") + " && " + logged("node 0 restarted with its data")},
		{button("node-1", "Pause"), nodeIs(1, "paused") + " && " + fact("node-1", "votes", "no")},
		{button("node-1", "Resume"), nodeIs(1, "up") + " && " + fact("node-1", "votes", "yes")},
		{button("node-2", "Restart with data"), logged("node 2 restarted with its data")},
		{button("node-3", "Slow"), nodeIs(3, "slow") + " && " + logged("node 3 slow by 150 ms")},
		{button("node-3", "Mend"), nodeIs(3, "up") + " && " + logged("node 3 mended")},
		{button("node-4", "Cut off"), nodeIs(4, "cut") + " && " + fact("replica-b", "cut off from", "node 4")},
		{button("node-4", "Mend"), nodeIs(4, "up") + " && " + fact("replica-b", "cut off from", "–")},
		{button("node-2", "Restart empty"), logged("node 2 emptied") + " && window.quarantined"},
		{`#node-2 button[data-name="Flush"]`, logged("node 2 flushed")},
		{button("replica-a", "Kill"), replicaIs("a", "down") + " && " + logged("a killed")},
		{button("replica-a", "Start"), replicaIs("a", "up") + " && " + logged("a started")},
		{button("replica-b", "Pause"), replicaIs("b", "paused") + " && " + logged("b paused")},
		{button("replica-b", "Resume"), replicaIs("b", "up") + " && " + logged("b resumed")},
		{button("replica-c", "Restart"), logged("c shut down") + " && " + logged("c started")},
		{button("replica-a", "Clock +0.5 s"), fact("replica-a", "clock", `\+500 ms`)},
		{button("replica-a", "Clock right"), fact("replica-a", "clock", "right")},
		{button("replica-a", "Clock −0.5 s"), fact("replica-a", "clock", "-500 ms")},
		{button("replica-a", "Clock +0.5 s"), fact("replica-a", "clock", "right")},
		{`[data-do=burst_http]`, logged("a burst of 200 requests") + " && " + counter("Updates with the lock") + " > 150"},
		{`[data-do=burst_tasks]`, logged("a burst of 50 tasks") + " && " + counter("Tasks: completed") + " > 40"},
		{"#fencing", `document.querySelector('#fencing').getAttribute('aria-checked') === 'false' && document.querySelector('#unsafe-note').textContent.includes('fencing is off')`},
		{"#fencing", `document.querySelector('#fencing').getAttribute('aria-checked') === 'true' && document.querySelector('#unsafe-note').hidden`},
	} {
		b.press(step.press)
		b.await(step.shows)
		b.await(green)
	}
	// Cut a node off from one replica only.
	b.run(`document.querySelector('#node-1 select').value = 'c'`)
	b.press(button("node-1", "Cut off"))
	b.await(fact("replica-c", "cut off from", "node 1") + " && " + fact("replica-a", "cut off from", "–"))
	b.press(button("node-1", "Mend"))
	b.await(nodeIs(1, "up"))
	// The faults are on the timeline, too.
	b.show("60")
	b.await(`document.querySelector('#seen').dataset.faults > 5 && document.querySelector('#seen').dataset.overlaps === '0'`)
	b.await(`document.querySelector('#counters .bad') === null`)

	// All cards of a kind have the same buttons.
	for _, kind := range []string{"nodes", "replicas"} {
		names := value[[]string](b, fmt.Sprintf(`[...document.querySelectorAll('#%s .card')].map(card => [...card.querySelectorAll('button')].map(node => node.dataset.name).join())`, kind))
		for _, other := range names[1:] {
			if other != names[0] {
				t.Errorf("%s have %s, and %s", kind, names[0], other)
			}
		}
	}
}
