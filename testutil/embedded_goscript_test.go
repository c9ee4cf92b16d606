package testutil

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/goscript"
)

// A Go function stands in for the script that it is for. It sees the keys and arguments of the call, the node's store and
// its history, and can publish. A script runs in Lua if the function does nothing, if a command is refused, or if the
// script's commands are observed.
func TestGoScript(t *testing.T) {
	t.Parallel()
	const source = "return 'Lua'"
	n := NewNodes(t, 1)[0]
	ok := true
	goscript.Use(n, func(found string) goscript.Script {
		if found != source {
			return nil
		}
		return func(n goscript.Node, keys, args []string) (any, bool) {
			if !ok {
				return nil, false
			}
			_ = n.DB().Set(keys[0], args[0])
			n.Publish("SPUBLISH", "channel", "hello")
			history, replica := n.Replication()
			_, isHistory := any(history).(string)
			return []any{1, "Go", []any{len(history)}, map[bool]int{true: 7}[isHistory && replica], nil}, true
		}
	})
	n.SetReplica(true)

	c := n.Client().(*redis.Client)
	ctx := t.Context()
	subscription := c.SSubscribe(ctx, "channel")
	if _, err := subscription.Receive(ctx); err != nil {
		t.Fatal(err)
	}

	eval := func() any { return c.Eval(ctx, source, []string{"key"}, "value").Val() }
	got, _ := eval().([]any)
	if len(got) != 5 || got[4] != nil || got[0] != int64(1) || got[1] != "Go" || got[3] != int64(7) || got[2].([]any)[0] != int64(40) {
		t.Errorf("the reply is %v", got)
	}
	if v := c.Get(ctx, "key").Val(); v != "value" {
		t.Errorf("the key is %q", v)
	}
	if m, err := subscription.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
		t.Errorf("the message is %v, %v", m, err)
	}
	if v := c.Eval(ctx, source+" ", []string{"key"}, "value").Val(); v != "Lua" {
		t.Errorf("another script returns %v", v)
	}

	ok = false
	if v := eval(); v != "Lua" {
		t.Errorf("if the function does nothing: %v", v)
	}
	ok = true
	n.OnCall(func(int, []string) string { return "" })
	if v := eval(); v != "Lua" {
		t.Errorf("with a hook: %v", v)
	}
	n.OnCall(nil)
	n.Refuse("SET", "OOM")
	if v := eval(); v != "Lua" {
		t.Errorf("if a command is refused: %v", v)
	}
	n.Refuse("SET", "")
	if _, isGo := eval().([]any); !isGo {
		t.Error("the function does not stand in again")
	}
}
