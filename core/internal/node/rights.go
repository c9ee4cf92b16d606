package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/faults"
)

// probing tries what scripts call.
func (x *Examination) probing() wire.Call { return x.call(x.keys.Probe(x.buckets[0], x.asCluster)) }

// tryRights tries all that lockkit calls. A replica takes no writes, but says what it would deny.
func (x *Examination) tryRights() {
	cmd := redis.NewStringCmd(x.ctx, x.probing().InFull()...)
	err := x.do(cmd)
	switch { // what cannot be told is not guessed
	case err == nil:
		_ = x.denied(wire.ParseRights(cmd.Val(), x.Conf.Prefix))
	case !goredis.Denied(err):
	case deniesKey(err):
		_ = x.denied(wire.Rights{"~" + x.Conf.Prefix + "*"})
	default:
		_ = x.denied(wire.Rights{"+eval"})
	}
}

func deniesKey(err error) bool {
	return strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), " key")
}

func (x *Examination) probe() error {
	reply, err := run(x.ctx, x.client, x.probing())
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	return x.denied(wire.ParseRights(text, x.Conf.Prefix))
}

// denied books what scripts were denied, and what no script can find out: INFO, and whether the user may subscribe. The
// error is why that cannot be told.
func (x *Examination) denied(inScripts wire.Rights) error {
	x.rights = inScripts
	if x.Info == nil {
		x.rights = append(x.rights, "+info")
	}
	err := x.within(x.trySubscribe) // on a connection of its own, so its silence says nothing
	switch {
	case !goredis.Denied(err):
		return err
	case strings.Contains(err.Error(), "channel"):
		x.rights = append(x.rights, "&"+x.Conf.Prefix+"*")
	case x.asCluster:
		x.rights = append(x.rights, "+ssubscribe")
	default:
		x.rights = append(x.rights, "+subscribe")
	}
	return nil
}

func (x *Examination) trySubscribe(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	channel := x.keys.Channel(x.buckets[0], "").Name
	subscription, err := goredis.Subscribe(ctx, x.client, x.asCluster, channel)
	if err == nil {
		_, _, err = subscription.Receive(max(time.Until(deadline), time.Millisecond))
	}
	subscription.Close()
	return err
}

// LacksRights notes what the user of the client may not do.
func (x *Examination) LacksRights() {
	user := goredis.UserOf(x.client)
	rules := faults.Clip(x.rights.String())
	mend := fmt.Sprintf("add %s to its ACL, see docs/operations.md (+info is for the restart guard; +spublish and +ssubscribe "+
		"need Redis 7.0): ACL SETUSER %s %s", rules, user, rules)
	switch {
	case rules == "":
	case rules == "+info" && !x.Conf.Guarded:
		x.Add(mild, rights, "denies INFO: eviction, role, version, and servers that are listed twice go unnoticed", mend)
	default:
		x.Add(severe, rights, fmt.Sprintf("denies its user %s what nothing works without", user), mend)
	}
}
