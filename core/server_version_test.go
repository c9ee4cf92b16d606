package core

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// The server on PATH is accepted, unless it is older than 6.2.7: then New says what it needs. `make servers` runs
// this on other versions.
func TestServerVersion(t *testing.T) {
	t.Parallel()
	client := testutil.NewServers(t, 1)[0].Client()
	info, err := client.Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^redis_version:(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(info)
	if found == nil {
		t.Fatalf("no redis_version in %s", info)
	}
	var version int
	for _, part := range found[1:] {
		var n int
		fmt.Sscan(part, &n)
		version = version*1000 + n
	}
	locks, err := New([]redis.UniversalClient{client}, quietly)
	if err == nil {
		defer locks.Close(t.Context())
	}
	switch old := version < 6_002_007; {
	case old && (err == nil || !strings.Contains(err.Error(), "6.2.7")):
		t.Errorf("%s: %v, want an error that names 6.2.7", found[0], err)
	case !old && err != nil:
		t.Errorf("%s: %v", found[0], err)
	}
}
