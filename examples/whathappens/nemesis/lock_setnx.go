package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// setNX is the lock that is written most often: SET NX PX on one server, and DEL by its holder. It has no renewal and
// no other node, and its tokens are a counter on the same server. The judge must find it out.
type setNX struct{ client *redis.Client }

func openSetNX(r Role) (Locks, error) {
	opts, err := redis.ParseURL(r.Nodes[0])
	if err != nil {
		return nil, err
	}

	return setNX{redis.NewClient(opts)}, nil
}

func (l setNX) Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error) {
	deadline := time.Now().Add(wait)
	name := fmt.Sprint(time.Now().UnixNano())

	for {
		sent := time.Now()
		ok, err := l.client.SetNX(ctx, "set-nx:"+key, name, ttl).Result()
		switch {
		case err != nil:
			return nil, err
		case ok:
			return l.hold(ctx, key, name, sent.Add(ttl))
		case time.Now().After(deadline):
			return nil, errHeld
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // this lock polls
	}
}

var errHeld = errors.New("held")

func (l setNX) hold(ctx context.Context, key, name string, end time.Time) (Lease, error) {
	token, err := l.client.Incr(ctx, "set-nx-token:"+key).Result()
	if err != nil {
		return nil, err
	}

	held, cancel := context.WithDeadline(context.Background(), end)
	return &setNXLease{l, held, cancel, key, name, uint64(token)}, nil
}

func (setNX) Once(context.Context, string, func(Lease) error) error { return errors.ErrUnsupported }

func (setNX) Revoke(context.Context, string) (uint64, time.Duration, error) {
	return 0, 0, errors.ErrUnsupported
}

func (setNX) Class(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errHeld):
		return "held"
	}

	return "other"
}

func (l setNX) Close(context.Context) error { return l.client.Close() }

type setNXLease struct {
	setNX
	ctx    context.Context
	cancel context.CancelFunc
	key    string
	name   string
	token  uint64
}

func (l *setNXLease) Context() context.Context { return l.ctx }
func (l *setNXLease) Key() string              { return l.key }
func (l *setNXLease) FencingToken() uint64     { return l.token }

// deleteOwn deletes a key only if it has the holder's name.
var deleteOwn = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func (l *setNXLease) Release(ctx context.Context, cooldown time.Duration) error {
	l.cancel()
	if cooldown > 0 {
		return errors.ErrUnsupported
	}

	return deleteOwn.Run(ctx, l.client, []string{"set-nx:" + l.key}, l.name).Err()
}
