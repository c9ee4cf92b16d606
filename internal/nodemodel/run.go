package nodemodel

import (
	"strings"

	"github.com/lockkit/lockkit/internal/goscript"
	"github.com/lockkit/lockkit/testutil"
)

// Run makes an embedded node answer by the model, except for scripts that the model does not know.
func Run(n *testutil.Node) {
	goscript.Use(n, Find)
}

// contracts lists the scripts that the model stands in for: a line of each script's contract, and a function that decodes
// its calls.
var contracts = []struct {
	line   string
	decode func(keys, args []string) (Command, bool)
	packed bool // the command may have several requests
}{
	{"\n-- Runs the requests of a command in order,", decodePacked, true},
	{"\n-- Ends an attempt of another process:", decodeRevoke, false},
	{"\n-- Drops a completion record.\n", decodeForget, false},
	{"\n-- Declares a node new ", decodeProvision, false},
	{"\n-- Lowers the longest lease ", decodeLower, false},
}

// Find is a [goscript.Finder].
func Find(source string) goscript.Script {
	for _, c := range contracts {
		if !strings.Contains(source, c.line) {
			continue
		}
		return func(n goscript.Node, keys, args []string) (any, bool) {
			command, ok := c.decode(keys, args)
			if !ok {
				return nil, false
			}

			replies, ok := execute(n, tagOf(keys[0]), command)
			if !ok {
				return nil, false
			}
			if !c.packed {
				return replies[0].text(command.Requests[0].Op), true
			}

			// A number that stands for plain requests, of which there are none, then each request's number and reply.
			all := []any{1}
			for i, v := range replies {
				all = append(all, i+1, v.text(command.Requests[i].Op))
			}
			return all, true
		}
	}

	return nil
}

// tagOf returns the beginning that all Redis keys of a bucket share.
func tagOf(key string) string { return key[:strings.IndexByte(key, '}')+1] }

// execute executes a command on a node that stores its state as the scripts do, and publishes the notices. If the node
// stores something that the model does not know, execute does nothing and returns false.
func execute(n goscript.Node, tag string, c Command) (replies []Reply, ok bool) {
	db := n.DB()
	µs := n.Now().UnixMicro()
	s := store{db: db, tag: tag, µs: µs}
	before, ok := s.load(c)
	if !ok {
		return nil, false
	}

	before.History, before.Replica = n.Replication()
	after, replies, notices := before.Step(c, µs)
	s.save(before, after)
	for _, notice := range notices {
		command := "PUBLISH"
		if notice.Sharded {
			command = "SPUBLISH"
		}
		n.Publish(command, notice.Channel, notice.Text)
	}

	return replies, true
}
