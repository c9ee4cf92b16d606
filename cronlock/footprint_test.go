package cronlock

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A tick takes no more keys and memory of a node than docs/operations.md says.
func TestFootprintOfATick(t *testing.T) {
	t.Parallel()
	client := testutil.NewServers(t, 1)[0].Client()
	locks, err := core.New([]redis.UniversalClient{client}, core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())

	service, err := New(locks, "billing")
	if err != nil {
		t.Fatal(err)
	}

	ran := make(chan struct{}, 100) // three runs, because the record of a start names the tick before
	_, err = service.Add("invoices", Every(time.Second), func(context.Context) error { ran <- struct{}{}; return nil })
	for range 3 {
		testutil.Receive(t, ran)
	}
	if err := errors.Join(err, service.Close(t.Context())); err != nil { // Close waits for the record of the last end
		t.Fatal(err)
	}

	keys := client.Keys(t.Context(), "*").Val()
	ticks, kept, keptBytes, all := int64(0), int64(0), int64(0), int64(0)

	for _, k := range keys {
		n := client.MemoryUsage(t.Context(), k, 0).Val() + 32 // plus the key's entry in the table of expiries
		all += n
		start, end := strings.Contains(k, "/5:start/"), strings.Contains(k, "/3:end/")
		if (start || end) && !strings.Contains(k, "}x:") {
			kept, keptBytes = kept+1, keptBytes+n
		}
		if end && !strings.Contains(k, "}x:") {
			ticks++
		}
	}

	if ticks == 0 {
		t.Fatalf("no tick among %q", keys)
	}

	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}

	each := []int64{int64(len(keys)) / ticks, all / ticks, kept / ticks, keptBytes / ticks}
	t.Logf("| a tick of a cron job | %d | %d | %d | %d |", each[0], each[1], each[2], each[3])

	row := regexp.MustCompile(`(?m)^\| a tick of a cron job \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$`).FindSubmatch(manual)
	if row == nil {
		t.Fatal("docs/operations.md has no row for a tick")
	}

	for i, n := range each {
		if promised, _ := strconv.ParseInt(string(row[i+1]), 10, 64); n > promised {
			t.Errorf("%d, the manual says %d", n, promised)
		}
	}
}
