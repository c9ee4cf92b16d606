package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/tool"
	"github.com/lockkit/lockkit/core/internal/wire"
)

func init() {
	tool.Looking = option(func(c *config) { c.looking = true })
	tool.Stored = func(text string, clock time.Time) (k KeyOnNode) {
		if k.read(text, wire.NodeTimeOf(clock)); k.Record != nil {
			k.Record = &Record{Token: k.Record.Token} // whether its result is complete is not known
		}
		return k
	}
	tool.Settled = settle
}
