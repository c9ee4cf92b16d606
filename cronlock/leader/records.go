package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Holder is who leads a group, as it has told the others.
type Holder struct {
	Identity string    `json:"identity"` // see WithIdentity
	Term     uint64    `json:"term"`     // the term's fencing token
	Since    time.Time `json:"since"`    // by the leader's clock
}

// Leader returns who leads. Where this process does, it asks nobody. Otherwise it is who has been elected last, as a
// quorum of nodes has it from the leader: it may have gone meanwhile, so this is for people to read, and excludes nobody.
// The error matches ErrNoLeader, or is core's.
func (e *Elector) Leader(ctx context.Context) (Holder, error) {
	if t, err := e.Term(); err == nil {
		return e.holder(t), nil
	}
	e.mu.Lock()
	own := e.own
	e.mu.Unlock()
	h, err := e.records.read(ctx)
	switch {
	case err != nil:
		return Holder{}, fmt.Errorf("leader: %w", err)
	case h.Term <= own: // none has been recorded since this process led
		return Holder{}, ErrNoLeader
	}
	return h, nil
}

func (e *Elector) holder(t Term) Holder {
	return Holder{e.identity, t.FencingToken, t.Since.UTC()}
}

// RequestResign asks whoever leads to resign, as if it had called Resign itself: it finishes the work of its term first.
// RequestResign returns when the request is recorded, and the leader looks for such requests every few seconds. The errors
// are those of Leader.
func (e *Elector) RequestResign(ctx context.Context) error {
	if t := e.current(); t != nil && t.leads() {
		t.shut()
		return nil
	}
	h, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	if err := e.records.ask(ctx, h.Term, e.identity); err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	return nil
}

// A leader looks every askedEvery whether it is to resign, and every toldEvery whether the nodes still know that it leads.
const askedEvery, toldEvery = 3 * time.Second, time.Minute

// show tells the other processes who leads, and heeds those that ask it to resign. What fails is repeated.
func (e *Elector) show(t *term) {
	for told := (time.Time{}); t.leads(); pause(t.notice, askedEvery) {
		if time.Since(told) >= toldEvery && e.records.add(t.notice, e.holder(t.Term)) == nil {
			told = time.Now()
		}
		if by, asked := e.records.asked(t.notice, t.FencingToken); asked {
			e.locker.Logger().Info("leader: another process asks this one to resign", "group", e.group, "by", by)
			t.shut()
		}
	}
}

// records are what the processes of a group tell one another, in completion records of core.
//
// Who leads: a leader adds a record when its term begins, and again on every later page, where a page is a span of time by
// the nodes' clocks, or when nodes have forgotten it. The records of a page are a list, under keys that count from 0; the first key without a record is its
// end. Who adds one holds the end, and has read the record before it, so that terms only grow along a list.
//
// Who is to resign: a record under a key of the term.
type records struct {
	locker *core.Locker
	group  string
}

const (
	pageLength = 10 * time.Minute
	recordWait = 3 * time.Second // for who holds a key just now; it may have died
)

func newRecords(locker *core.Locker, group string) (*records, error) {
	locker, err := locker.With(core.Name(group+"/leader"), core.Retention(3*pageLength), core.MaxWait(recordWait),
		core.MaxHold(0), core.MinHold(0), core.LockDelay(0), core.Linger(0), core.RenewWhile(nil))
	return &records{locker, group}, err
}

// page is the number of the current page.
func (r *records) page() int64 {
	ahead, _ := r.locker.ClockOffset()
	return time.Now().Add(ahead).UnixNano() / int64(pageLength)
}

// read returns the last record of this page, or of the one before, as the leader needs a moment to turn over. Its term is
// 0 if there is none.
func (r *records) read(ctx context.Context) (last Holder, err error) {
	page := r.page()
	for before := range int64(2) {
		var end *core.Lease
		last, end, err = r.walk(ctx, page-before)
		end.Release(ctx)
		if last.Term > 0 || err != nil && !errors.Is(err, core.ErrHeld) { // held: somebody reads, or is about to add
			break
		}
		err = nil
	}
	return last, err
}

// add adds a record, unless there is one of the same or a later term.
func (r *records) add(ctx context.Context, h Holder) error {
	last, end, err := r.walk(ctx, r.page())
	if err != nil {
		return err
	}
	text, err := json.Marshal(h)
	if err != nil || last.Term >= h.Term || ctx.Err() != nil {
		end.Release(ctx)
		return err
	}
	return end.Complete(ctx, text)
}

// walk returns the last record of a page, and a lease on its end.
func (r *records) walk(ctx context.Context, page int64) (last Holder, end *core.Lease, err error) {
	for n := 0; ; n++ {
		key := core.Key("cron-leader-record", r.group, strconv.FormatInt(page, 10), strconv.Itoa(n))
		if end, err = r.locker.Acquire(ctx, key); !errors.Is(err, core.ErrDone) {
			return last, end, err
		}
		var h Holder
		if json.Unmarshal(result(err), &h) == nil {
			last = h
		}
	}
}

// ask records that a term is to end.
func (r *records) ask(ctx context.Context, term uint64, by string) error {
	lease, err := r.locker.Acquire(ctx, r.request(term))
	switch {
	case errors.Is(err, core.ErrDone): // asked before
		return nil
	case err != nil:
		return err
	}
	return lease.Complete(ctx, []byte(by))
}

// asked reports whether a term is to end, and who wants it to.
func (r *records) asked(ctx context.Context, term uint64) (by string, asked bool) {
	lease, err := r.locker.TryAcquire(ctx, r.request(term))
	if err == nil {
		lease.Release(ctx)
	}
	return string(result(err)), errors.Is(err, core.ErrDone)
}

func (r *records) request(term uint64) string {
	return core.Key("cron-leader-resign", r.group, strconv.FormatUint(term, 10))
}

// result is that of the record which an error of core has, if it has one.
func result(err error) []byte {
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
		return op.Record.Result
	}
	return nil
}
