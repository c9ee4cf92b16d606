package sim

import (
	"testing"

	"github.com/lockkit/lockkit/testutil"
)

// Nodes of every fiftieth seed run their scripts, and the others answer by the model.
func TestByModel(t *testing.T) {
	t.Parallel()
	const forget = "local lua = 'Lua'\n-- Drops a completion record.\nreturn lua"
	for seed := range uint64(2 * byScripts) {
		n := testutil.NewNodes(t, 1)[0]
		ByModel(seed, n)

		want := "NONE"
		if seed%byScripts == 0 {
			want = "Lua"
		}
		got, err := n.Exec("EVAL", forget, 1, "p{0}r:key", 1)
		if err != nil || got != want {
			t.Errorf("seed %d: the script returns %v, %v", seed, got, err)
		}
	}
}
