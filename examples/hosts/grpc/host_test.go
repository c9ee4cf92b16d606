package grpc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
	"github.com/lockkit/lockkit/testutil"
)

func TestMain(m *testing.M) { replica.Main(m, serveOrders) }

func startServers(t *testing.T, ttl time.Duration) (one, other *server) {
	t.Helper()
	nodes := replica.StartNodes(t, ttl)
	return startServer(t, nodes, "one"), startServer(t, nodes, "other")
}

// While a call for an order runs, the other server refuses calls for that order, and runs those for others.
func TestGRPCRunsOneCallPerOrder(t *testing.T) {
	t.Parallel()
	one, other := startServers(t, replica.Long)
	ended := one.begin("42", untilTold)
	other.want(codes.Aborted, "42")
	other.want(codes.OK, "43")

	one.Tell("go on")
	if code := testutil.Receive(t, ended); code != codes.OK {
		t.Errorf("the first call: %v", code)
	}
	other.want(codes.OK, "42")
}

// The server that runs a call is killed. A client that tries again elsewhere succeeds after the TTL.
func TestGRPCHolderIsKilled(t *testing.T) {
	t.Parallel()
	one, other := startServers(t, replica.Usual)
	ended := one.begin("42", untilTold)
	one.Kill()
	if code := testutil.Receive(t, ended); code != codes.Unavailable {
		t.Errorf("the first call: %v", code)
	}

	other.retry("42")
}

// A server that cannot reach the nodes for locks refuses calls.
func TestGRPCOutage(t *testing.T) {
	t.Parallel()
	one, other := startServers(t, replica.Usual)
	one.CutOff()
	if code := one.call("42", quick); code != codes.Unavailable {
		t.Errorf("a call in an outage: %v", code)
	}
	other.want(codes.OK, "42")
}

// A server loses the lease of a call. The context of the handler ends, and the call fails although the handler succeeds.
// Another call for the order runs elsewhere.
func TestGRPCHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	one, other := startServers(t, replica.Usual)
	ended := one.begin("42", untilLost)
	one.CutOff()
	one.Await(stopped)
	one.AwaitLoss()
	if code := testutil.Receive(t, ended); code != codes.Unavailable {
		t.Errorf("the call that has lost its lease: %v", code)
	}

	other.retry("42")
}
