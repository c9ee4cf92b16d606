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

// probeCall returns the call of a script that tries everything that lockkit's scripts call.
func (x *Examination) probeCall() wire.Call { return x.call(x.keys.Probe(x.buckets[0], x.asCluster)) }

// tryRights tries every call of lockkit, and records which ones the user of the client is denied. A replica accepts
// no writes, but it shows which ones it would deny. If an error does not tell which right is missing, none is
// recorded.
func (x *Examination) tryRights() {
	cmd := redis.NewStringCmd(x.ctx, x.probeCall().InFull()...)

	err := x.do(cmd)
	switch {
	case err == nil:
		_ = x.addDenied(wire.ParseRights(cmd.Val(), x.Conf.Prefix))
	case !goredis.IsDenied(err):
	case deniesKey(err):
		_ = x.addDenied(wire.Rights{"~" + x.Conf.Prefix + "*"})
	default:
		_ = x.addDenied(wire.Rights{"+eval"})
	}
}

func deniesKey(err error) bool {
	return strings.Contains(err.Error(), "access") && strings.Contains(err.Error(), " key")
}

// probeRights tries the calls of the scripts and a subscription, and records the denied rights. An error means that
// the rights are not known.
func (x *Examination) probeRights() error {
	reply, err := runScript(x.ctx, x.client, x.probeCall())
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	return x.addDenied(wire.ParseRights(text, x.Conf.Prefix))
}

// addDenied records the rights that scripts were denied, and two rights that no script can try: INFO, and to
// subscribe. The error is the reason why it is unknown whether the user may subscribe.
func (x *Examination) addDenied(inScripts wire.Rights) error {
	x.deniedRights = inScripts
	if x.Info == nil {
		x.deniedRights = append(x.deniedRights, "+info")
	}

	// A subscription has a separate connection. If it is not answered, other requests may be, so ask is not used.
	err := x.within(x.trySubscribe)
	switch {
	case !goredis.IsDenied(err):
		return err
	case strings.Contains(err.Error(), "channel"):
		x.deniedRights = append(x.deniedRights, "&"+x.Conf.Prefix+"*")
	case x.asCluster:
		x.deniedRights = append(x.deniedRights, "+ssubscribe")
	default:
		x.deniedRights = append(x.deniedRights, "+subscribe")
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

// AddMissingRights adds a flaw if the user of the client is denied rights.
func (x *Examination) AddMissingRights() {
	user := goredis.UserOf(x.client)
	rules := faults.Clip(x.deniedRights.String())
	fix := fmt.Sprintf("add %s to its ACL, see docs/operations.md (+info is for the restart guard; +spublish and +ssubscribe "+
		"need Redis 7.0): ACL SETUSER %s %s", rules, user, rules)

	switch {
	case rules == "":
	case rules == "+info" && !x.Conf.Guarded:
		x.AddFlaw(mild, codeRights,
			"denies INFO: eviction, role, version, and servers that are listed twice go unnoticed", fix)
	default:
		x.AddFlaw(severe, codeRights, fmt.Sprintf("denies its user %s what nothing works without", user), fix)
	}
}
