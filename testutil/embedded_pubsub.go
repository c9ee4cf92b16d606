package testutil

import (
	"fmt"
	"strings"
	"time"
)

// A subscription is to messages of a kind, "message" or "smessage".
type subscription struct{ kind, channel string }

// subscribe answers SUBSCRIBE, UNSUBSCRIBE and their sharded forms, and reports
// whether the request was one of these. It must be called with exec held.
func (c *conn) subscribe(args []string) bool {
	kind := strings.ToLower(args[0])
	switch kind {
	case "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe":
	default:
		return false
	}
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if refusal := n.id.refused[args[0]]; refusal != "" {
		fmt.Fprintf(c.out, "-%s\r\n", refusal)
		return true
	}
	if len(args) < 2 {
		fmt.Fprintf(c.out, "-ERR wrong number of arguments for '%s' command\r\n", kind)
		return true
	}
	of := "message"
	if kind == "ssubscribe" || kind == "sunsubscribe" {
		of = "smessage"
	}
	if c.channels == nil {
		c.channels = map[subscription]bool{}
	}
	for _, channel := range args[1:] {
		if strings.Contains(kind, "un") {
			delete(c.channels, subscription{of, channel})
		} else {
			c.channels[subscription{of, channel}] = true
		}
		c.out.WriteString("*3\r\n" + bulk(kind) + bulk(channel) + fmt.Sprintf(":%d\r\n", c.countChannelsLocked(of)))
	}
	return true
}

// countChannelsLocked returns the number of channels of a kind that the connection is subscribed to.
func (c *conn) countChannelsLocked(kind string) (count int) {
	for s := range c.channels {
		if s.kind == kind {
			count++
		}
	}
	return count
}

// publish hands a message to those who have subscribed, and returns how many
// they are.
func (n *Node) publish(kind, channel, message string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if !c.channels[subscription{kind, channel}] {
			continue
		}
		count++
		if c.muted || n.faults.dropMessages {
			continue
		}
		data := []byte("*3\r\n" + bulk(kind) + bulk(channel) + bulk(message))
		c.replies = append(c.replies, reply{data, time.Now(), 0})
		c.wakeLocked()
	}
	return count
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// DropMessages loses what is published from now on, or no longer: those who
// have subscribed stay so, and do not hear of it. Up does not end it.
func (n *Node) DropMessages(on bool) {
	n.throw(func() { n.faults.dropMessages = on })
}

// BreakSubscriptions breaks the connections on which somebody has subscribed,
// and no others.
func (n *Node) BreakSubscriptions() {
	n.throw(func() {
		for c := range n.conns {
			if len(c.channels) > 0 {
				c.breakLocked()
			}
		}
	})
}
