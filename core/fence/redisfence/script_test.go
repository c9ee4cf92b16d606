package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/redisfence"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// A vault is a Redis with data, and a Locker.
type vault struct {
	*testing.T
	client redis.UniversalClient
	locks  *locktest.Locker
}

// each runs f on an embedded node and on a real server.
func each(t *testing.T, f func(v *vault)) {
	t.Helper()
	run := func(name string, client func(t *testing.T) redis.UniversalClient) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(newVault(t, client(t)))
		})
	}
	run("embedded", func(t *testing.T) redis.UniversalClient { return testutil.NewNodes(t, 1)[0].Client() })
	run("redis", func(t *testing.T) redis.UniversalClient { return testutil.NewServers(t, 1)[0].Client() })
}

func newVault(t *testing.T, client redis.UniversalClient) *vault {
	t.Helper()
	// Leases that last for long, on a machine that may stand still.
	locks := locktest.NewOn(t, testutil.NewNodes(t, 1), core.TTL(time.Minute), core.WithClockWindow(5*time.Second))
	return &vault{t, client, locks}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (v *vault) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// leases returns n leases on the key, each of them released, in the order of their tokens.
func (v *vault) leases(key string, n int) (all []*core.Lease) {
	v.Helper()
	for range n {
		lease := must(v.locks.Acquire(v.Context(), key))
		testutil.Await(v, "released", func() bool { return lease.Release(v.Context()) == nil }) // late on a busy machine
		all = append(all, lease)
	}
	return all
}

const balance = "{account:42}:balance"

var (
	set   = redisfence.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
	log   = redisfence.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")
	check = redisfence.NewScript("return 1")
)

// write sets the balance under a lease.
func (v *vault) write(lease *core.Lease, value int) error {
	return set.RunLease(v.Context(), v.client, lease, []string{balance}, value).Err()
}

func (v *vault) wantBalance(want string) {
	v.Helper()
	if got, _ := v.client.Get(v.Context(), balance).Result(); got != want {
		v.Errorf("the balance is %q, want %q", got, want)
	}
}

// wantErr checks that err matches all of want.
func (v *vault) wantErr(err error, want ...error) {
	v.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			v.Errorf("%v does not match %v", err, w)
		}
	}
}

// wantSaid checks that the text of an error has all parts.
func (v *vault) wantSaid(err error, parts ...string) {
	v.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			v.Errorf("%v does not say %q", err, part)
		}
	}
}

// tokenKeys returns the keys of tokens, by cursor, as no Redis with data should be asked otherwise.
func (v *vault) tokenKeys() (keys []string) {
	all := v.client.Scan(v.Context(), 0, "lockkit-fence:*", 1000).Iterator()
	for all.Next(v.Context()) {
		keys = append(keys, all.Val())
	}
	v.must(all.Err())
	return keys
}

// A holder that is paused until a later one has written is refused, with an error that names the greater token. The
// later holder can write twice.
func TestStaleHolderIsRefused(t *testing.T) {
	each(t, func(v *vault) {
		leases := v.leases("account", 2)
		earlier, later := leases[0], leases[1]
		v.must(v.write(earlier, 1))
		v.must(v.write(earlier, 2)) // an equal token passes
		v.must(v.write(later, 3))

		err := v.write(earlier, 4)
		v.wantErr(err, fence.ErrStale, core.ErrLost)
		v.wantSaid(err, `check "account"`, fmt.Sprint(earlier.FencingToken()), fmt.Sprint(later.FencingToken()))
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || op.Op != core.OpCheck || op.Err != core.ErrLost || op.Reason != core.LossStale {
			v.Errorf("%+v", op)
		}
		v.wantBalance("3")

		v.must(v.write(later, 5))
		v.wantBalance("5")
	})
}

// Run takes the innermost lease of the context.
func TestRunOfAContext(t *testing.T) {
	each(t, func(v *vault) {
		v.must(v.locks.Do(v.Context(), "outer", func(ctx context.Context) error {
			return v.locks.Do(ctx, "inner", func(ctx context.Context) error {
				return set.Run(ctx, v.client, []string{balance}, 1).Err()
			})
		}))
		v.must(v.write(v.leases("inner", 1)[0], 2))
		if keys := v.tokenKeys(); len(keys) != 1 {
			v.Errorf("there are tokens of %d locks: %q", len(keys), keys)
		}
	})
}

// Whatever the order in which writers come, the tokens of what they have written never fall.
func TestTokensOfWritesNeverFall(t *testing.T) {
	each(t, func(v *vault) {
		const writers, each = 16, 50
		leases := v.leases("account", writers*each)
		greatest := leases[len(leases)-1].FencingToken()
		rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })

		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for _, lease := range leases[i*each : (i+1)*each] {
					err := log.RunLease(v.Context(), v.client, lease, []string{balance}, lease.FencingToken()).Err()
					if err != nil && !errors.Is(err, fence.ErrStale) {
						v.Error(err)
					}
				}
			})
		}
		all.Wait()

		var last uint64
		for _, text := range must(v.client.LRange(v.Context(), balance, 0, -1).Result()) {
			token := must(strconv.ParseUint(text, 10, 64))
			if token < last {
				v.Fatalf("token %d was written after %d", token, last)
			}
			last = token
		}
		if last != greatest {
			v.Errorf("the last write has token %d, want %d", last, greatest)
		}
	})
}

// If a holder checks before it reads, no earlier holder writes in between. If it reads first, one can, and its write is
// overwritten.
func TestOrderOfCheckAndRead(t *testing.T) {
	each(t, func(v *vault) {
		leases := v.leases("account", 4)
		read := func() int { return must(v.client.Get(v.Context(), balance).Int()) }
		v.must(v.write(leases[0], 100))

		v.must(check.RunLease(v.Context(), v.client, leases[1], []string{balance}).Err())
		before := read()
		v.wantErr(v.write(leases[0], 90), fence.ErrStale)
		v.must(v.write(leases[1], before-10))
		v.wantBalance("90")

		before = read()
		v.must(v.write(leases[2], before-10))
		v.must(v.write(leases[3], before-10))
		v.wantBalance("80") // two withdrawals of 10 should have left 70
	})
}

// The keys of a call have one hash tag, and each tag has a token of its own: a key that is written together with others
// meets the same token as alone.
func TestKeysHaveOneTag(t *testing.T) {
	each(t, func(v *vault) {
		leases := v.leases("account", 2)
		run := func(lease *core.Lease, keys ...string) error {
			return set.RunLease(v.Context(), v.client, lease, keys, 1).Err()
		}
		v.must(run(leases[1], "{42}:a"))
		for _, keys := range [][]string{{"{42}:b", "{42}:a"}, {"42"}, {"x{42}"}} {
			v.wantErr(run(leases[0], keys...), fence.ErrStale)
		}
		v.must(run(leases[0], "{43}:a")) // these keys have not seen the later holder

		for _, keys := range [][]string{{"a", "b"}, {"{42}:a", "{43}:a"}, {"{42}:a", "a"}, {"{}a", "{}b"}} {
			err := run(leases[1], keys...)
			v.wantErr(err, core.ErrInvalid)
			v.wantSaid(err, "different hash tags")
		}
		for _, key := range []string{"", "a}", "{}a}", "}{"} {
			err := run(leases[1], key)
			v.wantErr(err, core.ErrInvalid)
			v.wantSaid(err, "give it a hash tag")
		}
		v.must(run(leases[1], "{")) // has a slot that others can share
		if n := len(v.tokenKeys()); n != 3 {
			v.Errorf("%d tokens", n)
		}
	})
}

// In a Redis Cluster, a script and its token are in one slot, whatever the keys look like.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testutil.NewCluster(t, 3, 15*time.Second)
	v := newVault(t, cluster.Client())
	leases := v.leases("account", 2)
	for i := range 20 {
		for _, key := range []string{fmt.Sprint("plain:", i), fmt.Sprintf("{tag %d}:a", i)} {
			write := func(lease *core.Lease) error {
				return set.RunLease(v.Context(), v.client, lease, []string{key}, i).Err()
			}
			v.must(write(leases[1]))
			v.wantErr(write(leases[0]), fence.ErrStale)
		}
	}
}

// longAgo returns a lease whose token is of the year 2000, in which bubbles begin.
func longAgo(t *testing.T, key string) (lease *core.Lease) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lease = must(locktest.New(t).Acquire(t.Context(), key))
	})
	return lease
}

// leaseOfAge returns a lease whose token was made so long ago. Bubbles begin in the year 2000, and sleeping takes no time.
func leaseOfAge(t *testing.T, key string, age time.Duration) (lease *core.Lease) {
	t.Helper()
	made := time.Now().Add(-age).Round(0) // by the wall clock
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(made))
		lease = must(locktest.New(t).Acquire(t.Context(), key))
	})
	return lease
}

// A token makes a key until it is 30 days old.
func TestAgeOfTokens(t *testing.T) {
	each(t, func(v *vault) {
		v.must(v.write(leaseOfAge(v.T, "younger", 30*24*time.Hour-time.Hour), 1))
		v.wantErr(v.write(leaseOfAge(v.T, "older", 30*24*time.Hour+time.Hour), 2), fence.ErrTooOld)
		v.wantBalance("1")
	})
}

// The key of a token lives for 31 days after the last write under it, and an old token makes none.
func TestOldTokens(t *testing.T) {
	each(t, func(v *vault) {
		old := longAgo(v.T, "account")
		err := v.write(old, 1)
		v.wantErr(err, fence.ErrTooOld)
		v.wantSaid(err, fmt.Sprint(old.FencingToken()), "acquire it again")
		if errors.Is(err, core.ErrLost) || errors.Is(err, fence.ErrStale) {
			v.Errorf("%v is a loss", err)
		}
		v.wantBalance("")
		if keys := v.tokenKeys(); len(keys) != 0 {
			v.Errorf("there are tokens: %q", keys)
		}

		v.must(v.write(v.leases("account", 1)[0], 2))
		key := v.tokenKeys()[0]
		wantLife := func(most time.Duration) {
			v.Helper()
			if life := must(v.client.PTTL(v.Context(), key).Result()); life > most || life < most-time.Hour {
				v.Errorf("the token lives for %v, want %v", life, most)
			}
		}
		wantLife(31 * 24 * time.Hour)

		v.must(v.client.PExpire(v.Context(), key, 2*time.Hour).Err())
		v.wantErr(v.write(old, 3), fence.ErrStale)
		wantLife(2 * time.Hour) // a refusal does not prolong it

		// A holder that has held its lease for long, and has written before, goes on.
		v.must(v.client.Set(v.Context(), key, old.FencingToken()-1, time.Hour).Err())
		v.must(v.write(old, 4))
		v.must(v.write(old, 5))
		wantLife(31 * 24 * time.Hour)
		v.wantBalance("5")
	})
}

// A Redis that may have evicted a token refuses the first write under a lock. With a token there, nothing was evicted.
func TestRedisThatEvicts(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		node := testutil.NewNodes(t, 1)[0]
		refusesToEvict(newVault(t, node.Client()), node.SetEvictionPolicy)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		v := newVault(t, testutil.NewServers(t, 1)[0].Client())
		refusesToEvict(v, func(policy string, maxmemory int64) {
			v.must(v.client.ConfigSet(v.Context(), "maxmemory-policy", policy).Err())
			v.must(v.client.ConfigSet(v.Context(), "maxmemory", fmt.Sprint(maxmemory)).Err())
		})
	})
}

func refusesToEvict(v *vault, configure func(policy string, maxmemory int64)) {
	account, other := v.leases("account", 1)[0], v.leases("other", 1)[0]
	configure("allkeys-lru", 0)
	v.must(v.write(account, 1)) // without maxmemory, nothing is evicted

	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		configure(policy, 1<<30)
		err := v.write(other, 2)
		v.wantErr(err, core.ErrInvalid)
		v.wantSaid(err, policy, "noeviction")
	}
	v.wantBalance("1")
	v.must(v.write(account, 3))

	configure("noeviction", 1<<30)
	v.must(v.write(other, 4))
}

// If Redis has lost its data, a stale holder can write again: the package document says so.
func TestRedisThatForgets(t *testing.T) {
	each(t, func(v *vault) {
		leases := v.leases("account", 2)
		v.must(v.write(leases[1], 1))
		v.wantErr(v.write(leases[0], 2), fence.ErrStale)
		v.must(v.client.FlushAll(v.Context()).Err())
		v.must(v.write(leases[0], 2))
	})
}

// What the key of a token has that is no token is not overwritten.
func TestKeyOfTheTokenIsTaken(t *testing.T) {
	each(t, func(v *vault) {
		lease := v.leases("account", 1)[0]
		v.must(v.write(lease, 1))
		key := v.tokenKeys()[0]
		v.must(v.client.Set(v.Context(), key, "text", 0).Err())
		err := v.write(lease, 2)
		v.wantErr(err, core.ErrInvalid)
		v.wantSaid(err, key)

		v.must(v.client.Del(v.Context(), key).Err())
		v.must(v.client.RPush(v.Context(), key, "a").Err())
		v.wantSaid(v.write(lease, 2), "WRONGTYPE")
		v.wantBalance("1")
	})
}

// Results are those of go-redis: a value, redis.Nil, or the error of the script.
func TestResults(t *testing.T) {
	each(t, func(v *vault) {
		lease := v.leases("account", 1)[0]
		run := func(body string) *redis.Cmd {
			return redisfence.NewScript(body).RunLease(v.Context(), v.client, lease, []string{balance, "{account:42}:b"}, "x", 7)
		}
		if n, err := run("return ARGV[2] + 1").Int(); n != 8 || err != nil {
			v.Errorf("%d, %v", n, err)
		}
		if s, err := run("return KEYS[2] .. ARGV[1] .. #KEYS .. #ARGV -- all of them").Text(); s != "{account:42}:bx22" || err != nil {
			v.Errorf("%q, %v", s, err)
		}
		if all, err := run("return {1, 'b'}").Slice(); fmt.Sprint(all) != "[1 b]" || err != nil {
			v.Errorf("%v, %v", all, err)
		}
		for _, body := range []string{"", "return nil", "return false", "return redis.call('GET', KEYS[1])"} {
			if err := run(body).Err(); err != redis.Nil {
				v.Errorf("%s: %v", body, err)
			}
		}
		v.wantSaid(run("return redis.error_reply('NOFUNDS too little')").Err(), "NOFUNDS")
		v.wantSaid(run("return redis.call('LPUSH', KEYS[1])").Err(), "ong number of arg", `under "account"`)
	})
}

// A script that fails halfway keeps what it has written, together with its token.
func TestScriptFailsHalfway(t *testing.T) {
	each(t, func(v *vault) {
		leases := v.leases("account", 2)
		broken := redisfence.NewScript("redis.call('SET', KEYS[1], 1) return redis.call('RPUSH', KEYS[1], 2)")
		v.wantSaid(broken.RunLease(v.Context(), v.client, leases[1], []string{balance}).Err(), "WRONGTYPE")
		v.wantBalance("1")
		v.wantErr(v.write(leases[0], 2), fence.ErrStale)
	})
}

// A later holder of the same slot makes a permit stale, and one of another slot does not. Slot 0 is the key.
func TestPermits(t *testing.T) {
	each(t, func(v *vault) {
		permits := func() (all []*semaphore.Permit) {
			limit := must(semaphore.New(v.locks.Locker, 2))
			for range 2 {
				all = append(all, must(limit.Acquire(v.Context(), "api")))
			}
			for _, permit := range all {
				testutil.Await(v, "released", func() bool { return permit.Release(v.Context()) == nil }) // late on a busy machine
			}
			return all
		}
		write := func(permit *semaphore.Permit) error {
			return set.RunPermit(v.Context(), v.client, permit, []string{balance}, 1).Err()
		}
		earlier, later := permits(), permits()
		v.must(write(later[0]))
		for _, permit := range earlier {
			if err := write(permit); errors.Is(err, fence.ErrStale) != (permit.Slot() == later[0].Slot()) {
				v.Errorf("slot %d after a later holder of slot %d: %v", permit.Slot(), later[0].Slot(), err)
			}
		}

		v.must(set.RunLease(v.Context(), v.client, v.leases("api", 1)[0], []string{balance}, 1).Err())
		for _, permit := range later {
			if err := write(permit); errors.Is(err, fence.ErrStale) != (permit.Slot() == 0) {
				v.Errorf("slot %d after a later lease: %v", permit.Slot(), err)
			}
		}
	})
}

// Bad input is an error that says what to do, and nothing is written.
func TestBadInput(t *testing.T) {
	each(t, func(v *vault) {
		lease := v.leases("account", 1)[0]
		limit := must(semaphore.New(v.locks.Locker, 2))
		var unmade *redisfence.Script
		keys := []string{balance}
		wantInvalid := func(err error, said string) {
			v.Helper()
			v.wantErr(err, core.ErrInvalid)
			v.wantSaid(err, said)
		}
		wantInvalid(set.Run(v.Context(), v.client, keys, 1).Err(), "the context has no lease")
		wantInvalid(set.Run(nil, v.client, keys, 1).Err(), "the context is nil")             //nolint:staticcheck // on purpose
		wantInvalid(set.RunLease(nil, v.client, lease, keys, 1).Err(), "the context is nil") //nolint:staticcheck // on purpose
		wantInvalid(set.RunLease(v.Context(), nil, lease, keys, 1).Err(), "the client is nil")
		wantInvalid(set.RunLease(v.Context(), v.client, lease, nil, 1).Err(), "there are no keys")
		wantInvalid(set.RunLease(v.Context(), v.client, nil, keys, 1).Err(), "was not made by")
		wantInvalid(set.RunPermit(v.Context(), v.client, nil, keys, 1).Err(), "was not made by")
		wantInvalid(unmade.RunLease(v.Context(), v.client, lease, keys, 1).Err(), "NewScript")
		wantInvalid(new(redisfence.Script).RunLease(v.Context(), v.client, lease, keys, 1).Err(), "NewScript")
		v.must(limit.Do(v.Context(), "api", func(ctx context.Context) error {
			wantInvalid(set.Run(ctx, v.client, keys, 1).Err(), "RunPermit")
			return nil
		}))
		v.wantBalance("")
		if found := v.tokenKeys(); len(found) != 0 {
			v.Errorf("there are tokens: %q", found)
		}
	})
}

// A user of Redis needs the commands and keys that the package document names, and those of the script.
func TestLeastACL(t *testing.T) {
	t.Parallel()
	server := testutil.NewServers(t, 1)[0]
	rules := "on >password ~lockkit-fence:* ~{account:42}:* -@all +eval +evalsha +get +set +time +info"
	for _, missing := range []string{"", "+get", "+set", "+time", "+info", "~lockkit-fence:*"} {
		admin := server.Client()
		args := []any{"ACL", "SETUSER", "app", "reset"}
		for _, rule := range strings.Fields(rules) {
			if rule != missing {
				args = append(args, rule)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}

		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "password"})
		defer client.Close()
		v := newVault(t, client)
		err := v.write(v.leases("account "+missing, 1)[0], 1)
		if (err == nil) != (missing == "") {
			t.Errorf("without %q: %v", missing, err)
		}
	}
}

// The end of a context because its lease was lost is a loss.
func TestLeaseIsLostBefore(t *testing.T) {
	each(t, func(v *vault) {
		ctx, lose := context.WithCancelCause(v.Context())
		lose(&core.OpError{Op: core.OpHold, Err: core.ErrLost})
		err := set.RunLease(ctx, v.client, v.leases("account", 1)[0], []string{balance}, 1).Err()
		v.wantErr(err, core.ErrLost, context.Canceled)
		v.wantBalance("")
	})
}
