//go:build !linux

package playground

import (
	"os"
	"testing"
)

func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	t.Skip("SKIPPED: it needs a terminal, and knows how to make one on Linux only")
	return nil, nil
}

func (p *program) freeze() {}

func (p *program) thaw() {}

func (p *program) memory(*testing.T) (server, others int) { return 0, 0 }
