package redisfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/redisfence"
)

var (
	ctx    = context.Background()
	client redis.UniversalClient // of the Redis that has the data
	locker *core.Locker
)

// A withdrawal reads the balance and writes it in one script. A holder that is stale withdraws nothing.
func ExampleScript_Run() {
	withdraw := redisfence.NewScript(`
		local balance = tonumber(redis.call('GET', KEYS[1]) or 0)
		if balance < tonumber(ARGV[1]) then
			return redis.error_reply('NOFUNDS the balance is too small')
		end
		redis.call('RPUSH', KEYS[2], '-' .. ARGV[1])
		return redis.call('DECRBY', KEYS[1], ARGV[1])`)

	keys := []string{"{account:42}:balance", "{account:42}:log"} // one hash tag
	err := locker.Do(ctx, core.Key("account", "42"), func(ctx context.Context) error {
		balance, err := withdraw.Run(ctx, client, keys, 10).Int()
		if err == nil {
			fmt.Println("the balance is", balance)
		}
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("a later holder has been at work: nothing was written")
	}
}
