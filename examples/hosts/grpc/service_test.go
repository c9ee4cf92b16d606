package grpc

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
)

// updateOrder is the request of the service, which has what protobuf generates for a field order_id.
type updateOrder struct {
	OrderID string
	Work    string
}

func (u *updateOrder) GetOrderId() string { return u.OrderID }

// The work of a call.
const (
	quick     = ""
	untilTold = "until the test says so"
	untilLost = "until its context ends"
)

type updated struct{ By string }

// A jsonCodec is in place of protobuf's, so that the service needs no generated code.
type jsonCodec struct{}

func (jsonCodec) Name() string                       { return "json" }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func init() { encoding.RegisterCodec(jsonCodec{}) }

const method = "/shop.Orders/Update"

// listening is what a process says before its address.
const listening = "listening: "

// running is what a process says when it begins a call that waits, and stopped when the context of one has ended.
const (
	running = "running"
	stopped = "stopped"
)

// serveOrders is a process with a server.
func serveOrders(self *replica.Self) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	server := grpc.NewServer(grpc.UnaryInterceptor(oneCallPerOrder(self.Locker)))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Orders",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Update", Handler: handleUpdate}},
	}, self)
	self.Say("%s%s", listening, listener.Addr())
	return server.Serve(listener)
}

// handleUpdate has the form that protobuf generates.
func handleUpdate(
	self any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	request := new(updateOrder)
	err := decode(request)
	if err != nil {
		return nil, err
	}
	return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: self, FullMethod: method}, func(ctx context.Context, req any) (any, error) {
		return update(ctx, self.(*replica.Self), req.(*updateOrder))
	})
}

// update is the handler. It succeeds even if its context ends.
func update(ctx context.Context, self *replica.Self, request *updateOrder) (*updated, error) {
	switch request.Work {
	case untilTold:
		self.Say(running)
		self.Hear()
	case untilLost:
		self.Say(running)
		<-ctx.Done()
		self.Say(stopped)
	}
	return &updated{By: self.Name}, nil
}

// A server is a process, and a client's connection to it.
type server struct {
	*replica.Replica
	t    *testing.T
	ctx  context.Context // of all calls
	conn *grpc.ClientConn
}

func startServer(t *testing.T, nodes *replica.Nodes, name string) *server {
	t.Helper()
	process := nodes.Start(name)
	addr := strings.TrimPrefix(process.Await(listening), listening)
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.CallContentSubtype("json")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return &server{process, t, ctx, conn}
}

// call calls the service, and returns the code that the client gets.
func (s *server) call(order, work string) codes.Code {
	reply := new(updated)
	err := s.conn.Invoke(s.ctx, method, &updateOrder{order, work}, reply)
	return status.Code(err)
}

// want calls the service, and fails the test if the client does not get the code. It tries again if the nodes for locks
// have not answered in time.
func (s *server) want(code codes.Code, order string) {
	s.t.Helper()
	got := s.call(order, quick)
	for got == codes.Unavailable {
		got = s.call(order, quick)
	}
	if got != code {
		s.t.Errorf("a call for order %s: %v, want %v", order, got, code)
	}
}

// retry calls the service until a call succeeds.
func (s *server) retry(order string) {
	s.t.Helper()
	for {
		switch code := s.call(order, quick); code {
		case codes.OK:
			return
		case codes.Aborted, codes.Unavailable:
		default:
			s.t.Fatalf("a call for order %s: %v", order, code)
		}
	}
}

// begin begins a call, and returns when its handler runs.
func (s *server) begin(order, work string) (ended <-chan codes.Code) {
	s.t.Helper()
	c := make(chan codes.Code, 1)
	go func() { c <- s.call(order, work) }()
	s.Await(running)
	return c
}
