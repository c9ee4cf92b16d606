// Package grpc lets one call at a time run for each order. Copy lock.go.
package grpc

import (
	"context"
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
			return nil, withCode(err)
		}
		return resp, nil
	}
}

// withCode gives a code to the errors of lockkit, which would be Unknown to the client. Other errors stay as they are.
func withCode(err error) error {
	switch core.ClassOf(err) {
	case core.ClassHeld:
		return status.Error(codes.Aborted, err.Error())
	case core.ClassUnavailable, core.ClassClosed, core.ClassLost:
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}
