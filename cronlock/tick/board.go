package tick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// The board of a service is what its replicas know in common beside ticks: which jobs are paused, and what was triggered.
// It is a list of completion records, each with the whole state, so that the last one counts. They are kept under
//
//	cron, service, board, page, n
//
// where n counts from 0, and the last record of a page closes it: the list goes on with the next one. A record is
// only ever added at the end, by who holds its key, so there is one list, and whoever has read any part of it finds the end.
//
// Pages are numbered by days, by the nodes' clocks, and each is closed a day ahead. So a process that knows nothing finds
// the list on today's page, or before, if no replica has run since. The first record of all needs more: who starts the
// list closes the pages of yesterday and of today, and goes on with tomorrow's. Another one, for whom it is a day earlier
// or later, starts with one of those, or looks at one of them.

const (
	boardRetention = 31 * day
	boardPages     = 28 // for so many days the list is found although no replica has run
	boardResumed   = 300
	boardLimit     = 60_000 // bytes of a record, less than core takes, so that a page can always be closed
	boardKeeps     = 50     // triggers, and as many pauses that are over, each for a day at most
	day            = 24 * time.Hour
)

// A board is the list as far as it was read: the state, and where the next record would be.
type board struct {
	page  int64
	n     int
	begun bool // there are records
	state
}

// A state is what a record of the board says.
type state struct {
	Paused   []pausing `json:"paused,omitempty"`
	Resumed  []pausing `json:"resumed,omitempty"`
	Triggers []trigger `json:"triggers,omitempty"`
	Closed   bool      `json:"closed,omitempty"` // the page
}

// after is the board with one more record.
func (b board) after(rec *core.Record) board {
	var s state
	if json.Unmarshal(rec.Result, &s) != nil {
		s = b.state
	}
	b.begun, b.n = true, b.n+1
	if s.Closed {
		b.page, b.n, s.Closed = b.page+1, 0, false
	}
	b.state = s
	return b
}

// known returns the board as it was read last.
func (s *Service) known() board {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.board
}

func (s *Service) note(b board) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.page > s.board.page || b.page == s.board.page && b.n >= s.board.n {
		s.board = b
	}
}

// read returns the board with all that was recorded before the call.
func (s *Service) read(ctx context.Context) (board, error) {
	b, today := s.known(), s.today()
	if b.page < today && (!b.begun || b.page < today-boardPages) {
		var err error
		if b, err = s.find(ctx, max(b.page-2, today-boardPages), today); err != nil {
			return b, err
		}
	}
	for {
		rec, err := s.recordAt(ctx, b.page, b.n)
		if err != nil {
			return b, err
		}
		if rec == nil {
			s.note(b)
			return b, nil
		}
		b = b.after(rec)
	}
}

// find returns the last page from one day to the day after another on which there are records; if there are none, an empty
// board.
func (s *Service) find(ctx context.Context, from, today int64) (board, error) {
	const atOnce = 8
	for to := today + 1; to >= from; to -= atOnce {
		var records [atOnce]*core.Record
		var errs [atOnce]error
		var wg sync.WaitGroup
		for i := range min(atOnce, to-from+1) {
			wg.Go(func() { records[i], errs[i] = s.recordAt(ctx, to-i, 0) })
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return board{}, err
		}
		if i := slices.IndexFunc(records[:], func(r *core.Record) bool { return r != nil }); i >= 0 {
			return board{page: to - int64(i)}, nil
		}
	}
	return board{page: today}, nil
}

// recordAt returns a record of the board, or nil.
func (s *Service) recordAt(ctx context.Context, page int64, n int) (*core.Record, error) {
	seen, err := s.locker.Inspect(ctx, s.boardKey(page, n))
	if err != nil || seen.Record != nil || !slices.ContainsFunc(seen.Nodes, func(n core.KeyOnNode) bool { return n.Record != nil }) {
		return seen.Record, err
	}
	// A record that some nodes show may be decided, if others have forgotten it or have not answered: who acquires the
	// key finds out.
	lease, rec, err := s.takeEnd(ctx, page, n, core.MaxWait(time.Second))
	lease.Release(context.WithoutCancel(ctx))
	if errors.Is(err, core.ErrHeld) {
		err = fmt.Errorf("%w: whether a pause is recorded is open: %v", core.ErrUnavailable, err) //nolint:errorlint // it is not held elsewhere
	}
	return rec, err
}

// takeEnd takes the key of a record, or returns the record that is there.
func (s *Service) takeEnd(ctx context.Context, page int64, n int, opts ...core.CallOption) (*core.Lease, *core.Record, error) {
	opts = append([]core.CallOption{core.Name(s.name + "/board"), core.Retention(boardRetention), core.MaxWait(0), core.MaxHold(0),
		core.Detached(true)}, opts...)
	lease, err := s.locker.Acquire(ctx, s.boardKey(page, n), opts...)
	if op, ok := errors.AsType[*core.OpError](err); ok && errors.Is(err, core.ErrDone) {
		return nil, op.Record, nil
	}
	return lease, nil, err
}

// change adds a record with what edit makes of the state, unless edit reports false. It returns when the record is decided,
// or, with an error, when it may be or not. Pages that are due are closed first.
func (s *Service) change(ctx context.Context, edit func(*state) bool) error {
	b, err := s.read(ctx)
	if !b.begun {
		b.page--
	}
	for err == nil {
		next := b.kept(s.Now())
		next.Closed = b.page <= s.today()
		if !next.Closed && !edit(&next) {
			return nil
		}
		if !next.Closed && !next.fit() {
			return errBoardFull
		}
		var added bool
		if b, added, err = s.add(ctx, b, next); added && !next.Closed {
			return nil
		}
	}
	return err
}

// errBoardFull: so many jobs are paused that nothing more can be recorded. Resume helps.
var errBoardFull = errors.New("too many jobs are paused")

// fit has the state fit into a record, by leaving out what may be forgotten, and reports whether it does.
func (s *state) fit() bool {
	size := func() int {
		b, _ := json.Marshal(s)
		return len(b)
	}
	for size() > boardLimit && len(s.Resumed) > 0 {
		s.Resumed = s.Resumed[(len(s.Resumed)+1)/2:]
	}
	return size() <= boardLimit
}

// add adds a record, and reports false where another one was added before, or the lease was lost: then it is to be tried
// again, with the board that is returned.
func (s *Service) add(ctx context.Context, b board, next state) (_ board, added bool, err error) {
	lease, rec, err := s.takeEnd(ctx, b.page, b.n)
	if lease != nil {
		rec = &core.Record{}
		if rec.Result, err = json.Marshal(next); err == nil {
			err = completeIn(ctx, lease, rec.Result)
		}
		lease.Release(context.WithoutCancel(ctx)) // which does nothing to one that is completed
	}
	switch {
	case errors.Is(err, core.ErrLost):
		return b, false, nil
	case err != nil:
		return b, false, err
	}
	b = b.after(rec)
	s.note(b)
	return b, lease != nil, nil
}

// kept is a copy of the state, without what has long been over.
func (s *state) kept(now time.Time) state {
	over := func(at time.Time) bool { return now.Sub(at) > day }
	return state{
		Paused:   slices.Clone(s.Paused),
		Resumed:  last(boardResumed, slices.DeleteFunc(slices.Clone(s.Resumed), func(p pausing) bool { return over(p.Until) })),
		Triggers: last(boardKeeps, slices.DeleteFunc(slices.Clone(s.Triggers), func(t trigger) bool { return over(t.At) })),
	}
}

func (s *Service) boardKey(page int64, n int) string {
	return core.Key("cron", s.name, "board", strconv.FormatInt(page, 10), strconv.Itoa(n))
}
