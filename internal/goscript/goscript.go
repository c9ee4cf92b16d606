// Package goscript makes an embedded node of testutil run Go functions in place of Lua scripts. Only tests use it.
package goscript

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// A Script has the effect of a call of a Lua script, and returns its reply: nil, an int, a string, or a []any of these. If
// it returns false, it has done nothing, and the node runs the Lua script.
type Script func(n Node, keys, args []string) (reply any, ok bool)

// A Node is the node that a Script runs on.
type Node interface {
	Now() time.Time
	Replication() (history string, replica bool)
	DB() *miniredis.RedisDB // database 0
	Publish(command, channel, text string)
}

// A Finder returns the Script to run in place of a Lua script, or nil if there is none.
type Finder func(source string) Script

// Use makes node, a *testutil.Node, run the results of find, for clients of database 0. While a node refuses commands, or
// a test observes the commands of its scripts, the node runs all scripts in Lua. Testutil sets Use.
var Use func(node any, find Finder)
