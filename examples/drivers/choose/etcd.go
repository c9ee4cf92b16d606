package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdWay locks with etcd's mutex: a key that belongs to a session, whose lease the client keeps alive.
//
// The token is the revision at which the mutex was acquired: etcd's revision grows with every change of anything.
// A lost session ends ctx when the client notices, which may be after another process got the key; Do then says so.
type etcdWay struct {
	client  *clientv3.Client
	ttl     time.Duration
	turn    chan struct{} // a session is one holder: two mutexes of it on one key do not exclude each other
	session *concurrency.Session
}

var errSessionLost = errors.New("etcd: the session's lease was lost")

func openEtcd(endpoints []string, ttl time.Duration) (*etcdWay, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	return &etcdWay{client: client, ttl: ttl, turn: make(chan struct{}, 1)}, err
}

func (w *etcdWay) Do(ctx context.Context, key string, work func(ctx context.Context, token uint64) error) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.login(ctx); err != nil {
		return err
	}
	mutex := concurrency.NewMutex(w.session, "/locks/"+key)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	held, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.session.Ctx(), func() { end(errSessionLost) })
	err := work(held, uint64(mutex.Header().Revision))
	stop()
	end(nil)
	// Not mutex.Unlock, which does not say that the key was gone.
	unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.ttl)
	defer cancel()
	unlocked, unlockErr := w.client.Txn(unlocking).If(mutex.IsOwner()).Then(clientv3.OpDelete(mutex.Key())).Commit()
	if unlockErr == nil && !unlocked.Succeeded {
		unlockErr = errSessionLost
	}
	return errors.Join(err, unlockErr)
}

// login begins a session, unless there is one.
func (w *etcdWay) login(ctx context.Context) error {
	if w.session != nil && w.session.Ctx().Err() == nil {
		return nil
	}
	lease, err := w.client.Grant(ctx, int64(w.ttl/time.Second)) // NewSession would not give up with ctx
	if err != nil {
		return err
	}
	w.session, err = concurrency.NewSession(w.client, concurrency.WithLease(lease.ID))
	return err
}

// Close ends the session, and with it what it holds.
func (w *etcdWay) Close(context.Context) error {
	if w.session != nil {
		_ = w.session.Close() // if it fails, the lease runs out
	}
	return w.client.Close()
}
