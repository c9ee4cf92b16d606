package testutil

import (
	"fmt"
	"testing"
)

// The functions that fastStrings replaces behave like those of Redis, also when they are called again.
func TestStringsLikeRedis(t *testing.T) {
	server, embedded := NewServers(t, 1)[0].Client(), Clients(NewNodes(t, 1))[0]
	for _, script := range []string{
		`return {string.match('key=value', '^(%w+)=(%w+)$')}`,
		`return {string.match('key=value', '%w+')}`,
		`return {string.match('key=value', '%w+', 5)}`,
		`return {string.match('key=value', '%w+', -2)}`,
		`return {string.match('key=value', '()=()')}`,
		`return {string.match('', '^(%d*)$')}`,
		`return {string.match(1234, '%d%d')}`,
		`return {string.match('1234', 23)}`,
		`return ('a.b'):match('%.(.)')`,
		`return string.match('a', '%d') == nil`,
		`return string.match('a')`,
		`return string.match('a', '(')`,
		`return string.format('%d', 1764000000123456)`,
		`return string.format('%d', -7)`,
		`return string.format('%d', '12')`,
		`return string.format('%d %d', 1, 2)`,
		`return string.format('%.0f', 1764000000123456)`,
	} {
		want, wantErr := server.Eval(t.Context(), script, nil).Result()
		for range 2 {
			got, err := embedded.Eval(t.Context(), script, nil).Result()
			if fmt.Sprint(got) != fmt.Sprint(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s: %v, %v; Redis says %v, %v", script, got, err, want, wantErr)
			}
		}
	}
}

// A node forgets results of string.match rather than keep more and more of them.
func TestMatchesAreBounded(t *testing.T) {
	n := NewNodes(t, 1)[0]
	got := mustExec(t, n, "EVAL", "local sum = 0; for i = 1, 1200 do sum = sum + string.match('n' .. i, '%d+') end; return sum", "0")
	if got != 1200*1201/2 {
		t.Error(got)
	}
	if kept := len(n.scripts.matched); kept == 0 || kept > maxMatched {
		t.Errorf("%d results are kept", kept)
	}
}
