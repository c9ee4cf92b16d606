package testutil

import (
	"fmt"
	"strings"
	"testing"
)

func TestScriptReplies(t *testing.T) {
	n := NewNodes(t, 1)[0]
	mustExec(t, n, "SET", "text", "v")
	for _, tc := range []struct{ script, want string }{
		{"return 'a'", "a"},
		{"return 3.9", "3"},
		{"return true", "1"},
		{"return false", "<nil>"},
		{"return", "<nil>"},
		{"return {1, 'b', {false, 2}, nil, 5}", "[1 b [<nil> 2]]"},
		{"return redis.status_reply('FINE')", "FINE"},
		{"return redis.call('GET', KEYS[1])", "v"},
		{"return redis.call('GET', 'none')", "<nil>"},
		{"return redis.call('SET', 'other', ARGV[1])", "OK"},
		{"return redis.call('HMGET', 'none', 'a', 'b')", "[<nil> <nil>]"},
		{"return redis.pcall('HGET', 'text', 'f')['err']", "WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"return redis.sha1hex('')", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		{"return tostring(1812345678901234)", "1.8123456789012e+15"},
		{"return tostring(12345678901234) .. tostring(-7) .. tostring('a') .. tostring(nil)", "12345678901234-7anil"},
		{"return cjson.decode('[1,2]')[2]", "2"},
		{"local ok, err = pcall(redis.call, 'HGET', 'text', 'f'); return string.sub(err.err, 1, 9)", "WRONGTYPE"},
	} {
		if got := fmt.Sprint(mustExec(t, n, "EVAL", tc.script, "1", "text", "arg")); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.script, got, tc.want)
		}
	}
}

func TestScriptErrors(t *testing.T) {
	n := NewNodes(t, 1)[0]
	mustExec(t, n, "SET", "text", "v")
	for _, tc := range []struct{ args, want string }{
		{"EVALSHA ffff 0", "NOSCRIPT "},
		{"EVAL return", "ERR wrong number of arguments"},
		{"EVAL return x", "ERR value is not an integer"},
		{"EVAL return -1", "ERR Number of keys can't be negative"},
		{"EVAL return 2 k", "ERR Number of keys can't be greater"},
		{"EVAL end 0", "ERR Error compiling script"},
		{"EVAL error('mine') 0", "ERR "},
		{"EVAL unknown=1 0", "ERR "},
		{"EVAL return(unknown) 0", "ERR "},
		{"EVAL return(redis.call('HGET','text','f')) 0", "WRONGTYPE "},
		{"EVAL return(redis.error_reply('OOPS')) 0", "OOPS"},
		{"EVAL return(redis.call('NONSENSE')) 0", "ERR "},
		{"EVAL return(redis.call('EVAL','return','0')) 0", "ERR This Redis command is not allowed from script"},
		{"EVAL return(redis.call('BLPOP','k','0')) 0", "ERR This Redis command is not allowed from script"},
		{"SCRIPT LOAD end", "ERR Error compiling script"},
		{"SCRIPT KILL", "ERR unknown subcommand"},
	} {
		var args []any
		for a := range strings.FieldsSeq(tc.args) {
			args = append(args, a)
		}
		if _, err := n.Exec(args...); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s…", tc.args, err, tc.want)
		}
		if got := mustExec(t, n, "EVAL", "return #KEYS + #ARGV", "1", "a", "b"); got != 2 {
			t.Errorf("after %s a script sees %v keys and arguments, want 2", tc.args, got)
		}
	}
}

// A script runs in the database its connection has selected, and in its transaction.
func TestScriptsAndTheirConnection(t *testing.T) {
	n := NewNodes(t, 1)[0]
	c := n.ClientWith(nil)
	conn := c.Conn()
	defer conn.Close()
	if err := conn.Select(t.Context(), 3).Err(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Eval(t.Context(), "return redis.call('SET', 'k', 'in 3')", nil).Err(); err != nil {
		t.Fatal(err)
	}
	if got := conn.Get(t.Context(), "k").Val(); got != "in 3" {
		t.Errorf("k is %q in database 3", got)
	}
	if keys := n.Keys(); len(keys) != 0 {
		t.Errorf("keys %v in database 0", keys)
	}
	sha := c.ScriptLoad(t.Context(), "return redis.call('INCR', KEYS[1])").Val()
	pipe := c.TxPipeline()
	pipe.Set(t.Context(), "n", "1", 0)
	pipe.EvalSha(t.Context(), sha, []string{"n"})
	last := pipe.EvalSha(t.Context(), sha, []string{"n"})
	if _, err := pipe.Exec(t.Context()); err != nil || last.Val() != int64(3) {
		t.Errorf("scripts in a transaction: %v, %v; want 3", last.Val(), err)
	}
	if err := c.EvalSha(t.Context(), sha, []string{"n"}).Err(); err != nil {
		t.Errorf("after the transaction: %v", err)
	}
}
