package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	tick    = 5 * time.Second        // of the job in examples/minimal/once
	jitter  = 600 * time.Millisecond // until a kill, at most
	aim     = 200 * time.Millisecond // how long after a tick a kill may come that is meant for its run
	silence = 50 * time.Millisecond  // of the nodes for locks, before a kill
	clients = 6                      // for payments at once, and as many for payments by a task
	pause   = 50 * time.Millisecond  // before a client asks for its next payment, and before it asks again
)

// play kills processes while clients ask for payments, and returns when all that was asked for must be done.
func (s *shop) play(ctx context.Context, p plan) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	try := func(work func() error) func() {
		return func() {
			err := work()
			if err != nil {
				fail(err) // the first error counts
			}
		}
	}

	var background, asking sync.WaitGroup
	hurrying, stopHurrying := context.WithCancel(ctx)
	background.Go(try(func() error { return s.queue.hurry(hurrying) }))
	background.Go(try(func() error {
		select {
		case err := <-s.crew.failed:
			return err
		case <-hurrying.Done():
			return nil
		}
	}))
	defer background.Wait()
	defer stopHurrying()

	closing := make(chan struct{})
	for i := range clients {
		for _, kind := range []client{now, later} {
			random := rand.New(rand.NewPCG(p.seed, uint64(i)))
			asking.Go(try(func() error { return s.ask(ctx, kind, i, random, closing) }))
		}
	}

	err = s.killAtRandom(ctx, p)
	close(closing)
	if err != nil {
		fail(err)
	}
	asking.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	err = s.queue.drain(ctx)
	if err != nil {
		return err
	}
	stopHurrying()
	background.Wait()
	return s.crew.shutDown()
}

// killAtRandom kills processes, and replaces each of them. Every fourth kill is meant for the run of a tick, and hits all
// processes, because it is not known which one has the run. Before about half of the kills, the nodes for locks hear
// nothing for a moment, so the payments of that moment are not recorded there. It ends early if an order was booked twice.
func (s *shop) killAtRandom(ctx context.Context, p plan) error {
	random := rand.New(rand.NewPCG(p.seed, clients))
	for n := range p.kills {
		err := s.awaitAnswer(ctx)
		if err != nil {
			return err
		}

		wait := time.Duration(random.Int64N(int64(jitter)))
		isAimed := n%4 == 1
		if isAimed {
			wait = time.Until(time.Now().Truncate(tick).Add(tick)) + time.Duration(random.Int64N(int64(aim)))
		}
		err = stage.Sleep(ctx, wait)
		if err != nil {
			return err
		}

		if random.IntN(2) == 0 {
			s.locks.mute()
			err = stage.Sleep(ctx, silence)
			if err != nil {
				return err
			}
		}

		victims := s.crew.present()
		if !isAimed && len(victims) > 0 {
			i := random.IntN(len(victims))
			victims = victims[i : i+1]
		}
		err = s.replace(ctx, victims)
		if err != nil {
			return err
		}

		order, err := s.database.bookedTwice(ctx)
		if err != nil {
			return err
		}
		if order != "" {
			fmt.Printf("%s was booked twice after %d kills\n", order, n+1)
			return nil
		}
	}
	return nil
}

// awaitAnswer waits until a client has got an answer.
func (s *shop) awaitAnswer(ctx context.Context) error {
	select {
	case <-s.ledger.answers:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replace kills processes, and starts as many.
func (s *shop) replace(ctx context.Context, victims []*worker) error {
	for _, w := range victims {
		s.crew.kill(w)
		s.ledger.killed()
	}
	s.locks.unmute()

	err := s.queue.orphan(ctx)
	if err != nil {
		return err
	}

	for range victims {
		err := s.crew.hire()
		if err != nil {
			return err
		}
	}
	return nil
}

// A client asks for one kind of payment.
type client struct {
	name, path string
	success    int
}

var (
	now   = client{"request", "/payments", http.StatusOK}
	later = client{"task", "/payments/later", http.StatusAccepted}
)

// ask asks for one payment after the other until closing is closed, and for each until it is answered. It asks for some
// of them once more after that.
func (s *shop) ask(ctx context.Context, kind client, number int, random *rand.Rand, closing <-chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-closing:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}

		order := fmt.Sprintf("%s-%d-%d", kind.name, number, n)
		times := 1 + random.IntN(4)/3
		for range times {
			receipt, err := s.askUntilAnswered(ctx, kind, order)
			if err != nil {
				return err
			}
			if kind == now {
				s.ledger.paid(order, receipt)
			} else {
				s.ledger.accepted(order)
			}
		}
	}
}

// askUntilAnswered asks any process for a payment, and another one if that does not answer, until one does.
func (s *shop) askUntilAnswered(ctx context.Context, kind client, order string) (receipt string, err error) {
	for {
		status, body, err := post(ctx, s.crew.pick()+"/orders/"+order+kind.path, order)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == nil && status == kind.success:
			return body, nil
		case err == nil && status != http.StatusConflict && status != http.StatusServiceUnavailable:
			return "", fmt.Errorf("%s: status %d: %s", order, status, body)
		}

		err = stage.Sleep(ctx, pause)
		if err != nil {
			return "", err
		}
	}
}

var impatient = &http.Client{Timeout: 20 * time.Second}

// post sends a request with an Idempotency-Key.
func post(ctx context.Context, url, key string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Idempotency-Key", `"`+key+`"`)

	response, err := impatient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, string(read), nil
}
