package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
)

// The environment of a process that Start has started.
const (
	nameOf  = "LOCKKIT_HOSTS_REPLICA"
	nodesOf = "LOCKKIT_HOSTS_NODES"
	ttlOf   = "LOCKKIT_HOSTS_TTL"
)

// Main is TestMain of a host. It runs the tests; in a process that Start has started, it runs play instead.
func Main(m *testing.M, play func(self *Self) error) {
	name := os.Getenv(nameOf)
	if name == "" {
		os.Exit(m.Run())
	}

	logging.Disable() // go-redis prints each failed dial
	self := &Self{Name: name, orders: json.NewDecoder(os.Stdin)}
	err := self.open()
	if err == nil {
		err = play(self)
	}
	if err != nil {
		self.Say("failed: %v", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Self is what a process knows of itself.
type Self struct {
	Name   string
	Locker *core.Locker // says Held when a key that it asks for is held
	orders *json.Decoder
}

// open opens the Locker.
func (s *Self) open() error {
	ttl, err := time.ParseDuration(os.Getenv(ttlOf))
	if err != nil {
		return err
	}
	watched := core.WithObserver(core.Observer{Start: withKey, Node: s.sayHeld})
	s.Locker, err = core.Open(strings.Split(os.Getenv(nodesOf), ","), core.TTL(ttl), watched)
	return err
}

// Held is what a process says before the name of a key that it has asked for, if another process holds the key.
const Held = "held by another: "

type keyOfOp struct{}

func withKey(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	return context.WithValue(ctx, keyOfOp{}, op.Key), nil
}

func (s *Self) sayHeld(ctx context.Context, kind core.OpKind, reply core.NodeReply) {
	if kind == core.OpAcquire && reply.Verdict == core.VerdictHeld {
		s.Say("%s%v", Held, ctx.Value(keyOfOp{}))
	}
}

// Say tells the test something, in a line.
func (s *Self) Say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Hear returns the next line that the test tells this process. If the test is gone, the process ends.
func (s *Self) Hear() (line string) {
	err := s.orders.Decode(&line)
	if err != nil {
		os.Exit(1)
	}
	return line
}
