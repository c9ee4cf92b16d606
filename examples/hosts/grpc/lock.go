// Package grpc lets one call at a time run for each order. Copy lock.go.
package grpc

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
)

// oneCallPerOrder lets one call at a time run for each order. Requests without an order are not locked. The error of a call
// that loses its lease is Unavailable, even if its handler has succeeded.
func oneCallPerOrder(locker *core.Locker) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		order, ok := req.(interface{ GetOrderId() string }) // as protobuf generates it
		if !ok {
			return handler(ctx, req)
		}

		err = locker.Do(ctx, core.Key("order", order.GetOrderId()), func(ctx context.Context) error {
			resp, err = handler(ctx, req) // ctx ends if the lease is lost
			return err
		}, core.MaxWait(5*time.Second))
		if err != nil {
			return nil, withCode(ctx, err)
		}
		return resp, nil
	}
}

// withCode gives a code to the errors of lockkit, which would be Unknown to the client. Their text has addresses and keys, so
// it is logged, and the client gets another one. Other errors stay as they are.
func withCode(ctx context.Context, err error) error {
	switch core.ClassOf(err) {
	case core.ClassHeld:
		return status.Error(codes.Aborted, "another call for this order is running")
	case core.ClassLost:
		slog.ErrorContext(ctx, "a call has lost its lock", "err", err)
		return status.Error(codes.Unavailable, "the call may have taken effect")
	case core.ClassUnavailable, core.ClassClosed:
		slog.ErrorContext(ctx, "a call got no lock", "err", err)
		return status.Error(codes.Unavailable, "nothing was done")
	}
	return err
}
