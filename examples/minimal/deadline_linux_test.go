package minimal

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// If the machine with asynq's Redis is gone, asynq takes minutes to shut down. The examples do not wait that long.
func TestShutdownHasADeadline(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"queue", "service", "once -sqlite " + filepath.Join(t.TempDir(), "payments.db")} {
		t.Run(strings.Fields(command)[0], func(t *testing.T) {
			t.Parallel()
			p := start(t, command, nodes(t), "REDIS_URL=redis://"+gone(t), "GIN_MODE=release", "ADDR=127.0.0.1:0")
			p.await(t, "INFO: Starting processing")
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			p.await(t, `failed err="asynq has not shut down in time`)
			if p.ended(t) == nil {
				t.Error("no error")
			}
		})
	}
}

// gone returns an address that neither accepts nor refuses connections, because its backlog is full.
func gone(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { c.Close() })
	}
}
