package playground

import (
	"strings"
	"testing"
)

// A playground whose standard output is no terminal says there and on its page that it ends after a minute.
func TestWithoutATerminal(t *testing.T) {
	needBrowser(t)
	t.Parallel()
	p := started(t, "127.0.0.1:0")
	b := newTab(t, 1280, 900, "light")
	b.open(p)
	b.setOffline(true)
	p.stop()

	// The page follows a playground that serves at the same address, and keeps what it said when that one has ended.
	alone := unattended(t, strings.TrimPrefix(p.url, "http://"))
	if alone.url != p.url {
		t.Fatalf("somebody has taken %s", p.url)
	}
	b.await(says("#ends", "ends at about") + " && " + says("#ends", "ends after a minute"))
	if said := alone.stop(); !strings.Contains(said, "standard output is no terminal, so it ends after 1m0s") {
		t.Errorf("it says:\n%s", said)
	}
}
