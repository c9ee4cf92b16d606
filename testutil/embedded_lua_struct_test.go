package testutil

import (
	"fmt"
	"testing"
)

// The struct library of embedded nodes behaves like the one of Redis.
func TestStructLikeRedis(t *testing.T) {
	real, embedded := NewServers(t, 1)[0].Client(), Clients(NewNodes(t, 1))[0]
	for _, script := range []string{
		`return struct.pack('<BdBc0', 1, 2.5, 3, 'abc')`,
		`return {struct.unpack('<BBc0', '\7\2abc')}`,
		`return {struct.unpack('<Bc0', '\7\2abc', 2)}`,
		`return {struct.unpack('<Bc0dBc0', 'xy' .. struct.pack('<Bc0dBc0', 1, 'r', 5, 2, 'cd') .. 'rest', 3)}`,
		`return {struct.unpack('<d', struct.pack('<d', 1764000000123))}`,
		`return {struct.unpack('<dc0B', struct.pack('<d', 3) .. 'abc\7')}`,
		`return {struct.unpack('<dc0dc0', struct.pack('<d', 0) .. struct.pack('<d', 2) .. 'ab')}`,
		`return struct.unpack('<dc0', struct.pack('<d', 9) .. 'abc')`,
		`return struct.unpack('<Bc0', '\9abc')`,
		`return struct.unpack('<d', 'short')`,
		`return struct.pack('<Bc0', 4, 'abc')`,
	} {
		want, wantErr := real.Eval(t.Context(), script, nil).Result()
		got, err := embedded.Eval(t.Context(), script, nil).Result()
		if fmt.Sprint(got) != fmt.Sprint(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, %v; Redis says %v, %v", script, got, err, want, wantErr)
		}
	}
}
