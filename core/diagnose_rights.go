package core

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// tryRights tries all that lockkit calls. A replica takes no writes, but says what it would deny.
func (x *examination) tryRights() {
	publish, bucket := "publish", x.buckets[0]
	if x.asCluster {
		publish = "spublish"
	}
	lacks := func(command string) { x.Rights.Essential = append(x.Rights.Essential, command) }
	if !x.id.told {
		lacks("info")
	}
	args := append(probeScript.args(2, x.keys.probe(bucket)), publish, x.keys.channel(bucket, ""))
	cmd := redis.NewStringCmd(x.ctx, probeScript.inFull(args)...)
	err := x.ask(cmd)
	if mayNot(err) && !ofKey(err) {
		lacks("eval")
		cmd = redis.NewStringCmd(x.ctx, args...)
		err = x.ask(cmd)
	}
	switch {
	case !mayNot(err):
	case ofKey(err):
		x.Rights.Key = true
	default:
		lacks("evalsha")
	}
	if err == nil {
		denied := parseRights(cmd.Val())
		x.Rights.Essential = append(x.Rights.Essential, denied.commands...)
		x.Rights.Key, x.Rights.Channel = denied.key, denied.channel
	}
	x.Rights.Known = err == nil || x.Rights.Key || answered(err) && len(x.Rights.Essential) > 0
	if !x.Rights.Known {
		return
	}
	listening, err := x.tryListening(x.keys.channel(bucket, ""))
	if err == nil {
		x.Rights.Essential = append(x.Rights.Essential, listening.commands...)
		x.Rights.Channel = x.Rights.Channel || listening.channel
	}
}

// ofKey reports whether a right is denied for the key, not for the command.
func ofKey(err error) bool {
	return strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), " key")
}

// tryListening takes a connection of its own, so its silence says nothing.
func (x *examination) tryListening(channel string) (r rights, err error) {
	err = x.within(func(ctx context.Context) error {
		return r.tryListening(ctx, x.client, x.asCluster, channel, x.p.nodeTimeout)
	})
	return r, err
}

// refused notes why the server does not take what every lock is.
func (x *examination) refused(err error) {
	switch {
	case !answered(err):
	case mayNot(err):
		if says(err, "NOPERM") && !slices.Contains(x.Rights.Essential, "evalsha") && strings.Contains(err.Error(), "evalsha") {
			x.Rights.Essential = append(x.Rights.Essential, "evalsha")
		}
	default:
		x.refusal = err
	}
}
