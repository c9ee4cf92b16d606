package queuelock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/goscript"
	"github.com/lockkit/lockkit/testutil"
)

// findPoll is a [goscript.Finder] for asynq's Redis. Servers of asynq poll by scripts, most of which find nothing to do,
// and the interpreter of Lua takes longer than all else that such a poll needs. A poll that finds something runs in Lua.
func findPoll(source string) goscript.Script {
	source = strings.TrimSpace(source)
	for _, p := range simPollScripts {
		if strings.HasPrefix(source, p.begins) && strings.HasSuffix(source, p.ends) {
			return p.finds
		}
	}
	return nil
}

// simPollScripts has the first and last lines of the scripts that poll. If there is nothing to do, these lines are all
// that has an effect.
var simPollScripts = []struct {
	begins, ends string
	finds        goscript.Script
}{
	{ // takes the next task
		"if redis.call(\"EXISTS\", KEYS[2]) == 0 then\n\tlocal id = redis.call(\"RPOPLPUSH\", KEYS[1], KEYS[3])\n\tif id then\n",
		"\t\treturn redis.call(\"HGET\", key, \"msg\")\n\tend\nend\nreturn nil",
		func(n goscript.Node, keys, _ []string) (reply any, ok bool) {
			pending, paused := keys[0], keys[1]
			return nil, n.DB().Exists(paused) || !n.DB().Exists(pending)
		},
	},
	{ // moves or deletes the tasks that are due
		"local ids = redis.call(\"ZRANGEBYSCORE\", KEYS[1], \"-inf\", ARGV[1], \"LIMIT\", 0, ",
		"end\nreturn table.getn(ids)",
		func(n goscript.Node, keys, args []string) (reply any, ok bool) {
			isDue, ok := anyUpTo(n, keys[0], args[0])
			return 0, ok && !isDue
		},
	},
}

// anyUpTo reports whether a member of a sorted set has a score of at most limit. ok is false if that is not known.
func anyUpTo(n goscript.Node, set, limit string) (found, ok bool) {
	if !n.DB().Exists(set) {
		return false, true
	}
	most, err := strconv.ParseFloat(limit, 64)
	if err != nil {
		return false, false
	}
	scores, err := n.DB().SortedSet(set)
	for _, score := range scores {
		found = found || score <= most
	}
	return found, err == nil
}

// asynq's polls have the same replies and effects with findPoll as in Lua, and those that find nothing do not run in Lua.
func TestPolls(t *testing.T) {
	var sources []string
	synctest.Test(t, func(t *testing.T) {
		queue := testutil.NewNodes(t, 1)[0]
		goscript.Use(queue, func(source string) goscript.Script {
			if findPoll(source) != nil {
				sources = append(sources, source)
			}
			return nil
		})
		cfg := asynq.Config{Logger: silent{}, LogLevel: asynq.FatalLevel}
		server := asynq.NewServerFromRedisClient(queue.Client(), cfg)
		must0(t, server.Start(asynq.NewServeMux()))
		time.Sleep(time.Minute)
		server.Shutdown()
	})
	if len(sources) != 3 { // it dequeues, forwards, and deletes completed tasks
		t.Errorf("asynq polls by %d known scripts", len(sources))
	}

	const due = 100
	states := [][][]any{
		nil,
		{{"LPUSH", "KEYS[1]", "a"}, {"HSET", "task:a", "msg", "hello", "pending_since", 1}},
		{{"LPUSH", "KEYS[1]", "a"}, {"SET", "KEYS[2]", 1}},
		{{"ZADD", "KEYS[1]", due, "a"}, {"HSET", "task:a", "msg", "hello"}},
		{{"ZADD", "KEYS[1]", due + 1, "a"}},
		{{"ZADD", "KEYS[1]", due + 1, "a"}, {"ZADD", "KEYS[1]", due - 1, "b"}},
		{{"SET", "KEYS[1]", "no list"}},
	}
	for _, source := range sources {
		for _, state := range states {
			answer := func(find goscript.Finder) string {
				n := testutil.NewNodes(t, 1)[0]
				for _, command := range state {
					must(n.Exec(command...))
				}
				goscript.Use(n, find)
				reply, err := n.Exec("EVAL", source, 4, "KEYS[1]", "KEYS[2]", "KEYS[3]", "KEYS[4]", due, "task:", due, "group:")
				return fmt.Sprint(reply, err, dump(n))
			}
			stoodIn := 0
			got := answer(func(source string) goscript.Script {
				poll := findPoll(source)
				return func(n goscript.Node, keys, args []string) (any, bool) {
					reply, ok := poll(n, keys, args)
					if ok {
						stoodIn++
					}
					return reply, ok
				}
			})
			if want := answer(nil); got != want {
				t.Errorf("%v: %s; in Lua, %s\n%s", state, got, want, source)
			}
			if state == nil && stoodIn != 1 {
				t.Errorf("on an empty node, this runs in Lua:\n%s", source)
			}
		}
	}
}

// dump returns all that a node stores.
func dump(n *testutil.Node) (all []string) {
	for _, key := range n.Keys() {
		kind, _ := n.Exec("TYPE", key)
		read := map[any][]any{
			"string": {"GET", key}, "list": {"LRANGE", key, 0, -1}, "hash": {"HGETALL", key}, "zset": {"ZRANGE", key, 0, -1, "WITHSCORES"},
		}[kind]
		value, _ := n.Exec(read...)
		all = append(all, fmt.Sprint(key, value))
	}
	return slices.Sorted(slices.Values(all))
}
