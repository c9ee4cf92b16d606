package testutil

import (
	"fmt"
	"strings"
	"time"
)

// A subscription is to messages of a kind, "message" or "smessage".
type subscription struct{ kind, channel string }

// subscribe answers SUBSCRIBE, UNSUBSCRIBE and their sharded forms, and reports
// whether the request was one of these. node.exec must be held.
func (c *conn) subscribe(args []string) bool {
	switch args[0] {
	case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE":
	default:
		return false
	}

	command := strings.ToLower(args[0])
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()

	if refusal := n.identity.refusals[args[0]]; refusal != "" {
		fmt.Fprintf(c.out, "-%s\r\n", refusal)
		return true
	}
	if len(args) < 2 {
		fmt.Fprintf(c.out, "-ERR wrong number of arguments for '%s' command\r\n", command)
		return true
	}

	kind := "message"
	if command == "ssubscribe" || command == "sunsubscribe" {
		kind = "smessage"
	}
	if c.subscriptions == nil {
		c.subscriptions = map[subscription]bool{}
	}

	for _, channel := range args[1:] {
		if strings.Contains(command, "un") {
			delete(c.subscriptions, subscription{kind, channel})
		} else {
			c.subscriptions[subscription{kind, channel}] = true
		}
		c.out.WriteString("*3\r\n" + bulk(command) + bulk(channel) +
			fmt.Sprintf(":%d\r\n", c.countSubscriptionsLocked(kind)))
	}

	return true
}

// countSubscriptionsLocked returns the number of subscriptions of a kind.
func (c *conn) countSubscriptionsLocked(kind string) (count int) {
	for s := range c.subscriptions {
		if s.kind == kind {
			count++
		}
	}
	return count
}

// messageKind returns the kind of the messages that PUBLISH or SPUBLISH sends.
func messageKind(command string) string {
	return strings.ToLower(strings.Replace(command, "PUBLISH", "MESSAGE", 1))
}

// publish sends a message to the subscribers of a channel, and returns their number.
func (n *Node) publish(kind, channel, message string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for c := range n.conns {
		if !c.subscriptions[subscription{kind, channel}] {
			continue
		}
		count++ // also if a fault loses the message: the server does not know
		if c.losesReplies || n.faults.dropMessages {
			continue
		}

		data := []byte("*3\r\n" + bulk(kind) + bulk(channel) + bulk(message))
		c.replies = append(c.replies, reply{data, time.Now(), 0})
		c.arrival.ring()
	}

	return count
}

// bulk returns s as a RESP bulk string.
func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// DropMessages turns the loss of published messages on or off. Subscriptions
// stay, but while it is on their subscribers receive no message. Up does not
// turn it off.
func (n *Node) DropMessages(on bool) {
	n.change(func() { n.faults.dropMessages = on })
}

// BreakSubscriptions breaks the connections that have a subscription, and no
// others.
func (n *Node) BreakSubscriptions() {
	n.change(func() {
		for c := range n.conns {
			if len(c.subscriptions) > 0 {
				c.breakLocked()
			}
		}
	})
}
