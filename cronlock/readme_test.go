package cronlock_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/testutil"
)

// The code of Example, of which the README shows a part, works. That it is the same is for TestSnippets of internal/docs.
func TestReadme(t *testing.T) {
	node := testutil.StartNode()
	defer node.Close()
	locker := newLocker(node)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx, locker); err != nil {
		t.Error(err)
	}
}
