package core

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// rights are what a server denies its user: commands, and whether it is the keys or the channels of the prefix.
type rights struct {
	commands     []string
	key, channel bool
}

// parseRights reads what probe.lua answered.
func parseRights(reply string) (r rights) {
	for word := range strings.FieldsSeq(strings.TrimPrefix(reply, "OK")) {
		if command := strings.TrimRight(word, "~&"); command == word {
			r.commands = append(r.commands, command)
		}
		r.key = r.key || strings.HasSuffix(word, "~")
		r.channel = r.channel || strings.HasSuffix(word, "&")
	}
	return r
}

// rules are those that the user's ACL lacks; empty if it lacks none.
func (r rights) rules(prefix string) string {
	var rules []string
	for _, command := range r.commands {
		rules = append(rules, "+"+command)
	}
	slices.Sort(rules)
	rules = slices.Compact(rules)
	if r.key {
		rules = append(rules, "~"+prefix+"*")
	}
	if r.channel {
		rules = append(rules, "&"+prefix+"*")
	}
	return strings.Join(rules, " ")
}

// tryListening books whether c may subscribe to a channel, which no script can find out, and returns why that cannot be
// told.
func (r *rights) tryListening(ctx context.Context, c redis.UniversalClient, sharded bool, channel string, within time.Duration) error {
	pubsub, err := listenTo(ctx, c, sharded, channel)
	if err == nil {
		_, err = pubsub.ReceiveTimeout(notAnew, within)
	}
	pubsub.Close()
	switch {
	case !mayNot(err):
		return err
	case strings.Contains(err.Error(), "channel"):
		r.channel = true
	case sharded:
		r.commands = append(r.commands, "ssubscribe")
	default:
		r.commands = append(r.commands, "subscribe")
	}
	return nil
}

// notAnew is a context in which go-redis makes no new connection in place of one that failed.
var notAnew = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended at once
	cancel()
	return ctx
}()

// listenTo subscribes c to a channel. The subscriber is there, and to be closed, whatever the error.
func listenTo(ctx context.Context, c redis.UniversalClient, sharded bool, channel string) (*redis.PubSub, error) {
	if sharded {
		pubsub := c.SSubscribe(ctx)
		return pubsub, pubsub.SSubscribe(ctx, channel)
	}
	pubsub := c.Subscribe(ctx)
	return pubsub, pubsub.Subscribe(ctx, channel)
}
