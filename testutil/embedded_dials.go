package testutil

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A nodeClient is a client of an embedded node.
type nodeClient struct {
	*redis.Client
	dials *dials
}

// close closes the client, and waits for the goroutine in which go-redis dials once a second after the client has failed
// to dial as often as its pool has connections. Client.Close does not wait for it, and a bubble that ends before it
// would end the test binary.
func (c nodeClient) close() {
	_ = c.Client.Close()
	if c.dials.failed() >= c.Options().PoolSize {
		c.dials.waitForProbe()
	}
}

// dials counts the failed dials of a client.
type dials struct {
	mu       sync.Mutex
	failures int
	last     time.Time // of the failures
}

// over returns a dialer that counts the failures of dial.
func (d *dials) over(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.failures++
			d.last = time.Now()
		}
		return conn, err
	}
}

func (d *dials) failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures
}

// waitForProbe waits until the goroutine of a closed client has woken up from the second that it sleeps after a failure.
func (d *dials) waitForProbe() {
	for {
		d.mu.Lock()
		left := time.Until(d.last.Add(time.Second + time.Millisecond))
		d.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left) //nolint:forbidigo // go-redis does not tell when its goroutine ends
	}
}
