package coretest

import (
	"strconv"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Sent is a request as it stands in a command.
type Sent = wire.Sent

// RequestsOf takes a command apart; none where it is not lockkit's.
func RequestsOf(args []any) []Sent { return wire.SentIn(args) }

// RequestsOfText takes a command apart as a node reads it.
func RequestsOfText(args []string) []Sent {
	if len(args) < 4 {
		return nil
	}
	keys, _ := strconv.Atoi(args[2])
	all := []any{args[0], args[1], keys}
	for _, a := range args[3:] {
		all = append(all, a)
	}
	last := len(all) - 1
	all[last] = []byte(args[last])
	return RequestsOf(all)
}
