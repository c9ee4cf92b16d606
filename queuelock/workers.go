package queuelock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// workers are those of one server: how many there are, how many are busy, and which of them wait in place for a key.
// asynq fetches a task for each worker that is not busy. So whoever waits leaves one free, for what else there is to do.
type workers struct {
	total int

	mu      sync.Mutex
	busy    int
	unseen  []time.Time // when tasks were fetched that have not come to the middleware: their workers may be busy still
	waiting []*worker   // in the order in which they came
	explore *rate.Limiter
	soon    bool                 // one of them is to give way in a moment
	resting map[string]time.Time // until when nobody gets a key, where that is known
}

func newWorkers(n int) workers {
	// While all tasks that come have to wait, they are fetched for no more than to be given back, in case that there are
	// others behind them: not without bound.
	return workers{total: n, explore: rate.NewLimiter(rate.Limit(10*n), 4*n), resting: map[string]time.Time{}}
}

// A worker is at work on one delivery.
type worker struct {
	of    *workers
	left  bool               // it is not busy any more
	key   string             // that it waits for, or has waited for
	yield context.CancelFunc // has it cease to wait
}

// unseenFor is for how long a task counts that was fetched, and does not come to the middleware: asynq's default timeout.
const unseenFor = 30 * time.Minute

// fetch notes that asynq has fetched a task, which may come to the middleware, or have a handler that is not behind it.
func (ws *workers) fetch() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.unseen = append(ws.unseen, time.Now())
	ws.makeRoom(false)
}

// unfetch notes that a task was fetched, but by another server.
func (ws *workers) unfetch() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.sawOne()
}

func (ws *workers) sawOne() {
	if n := len(ws.unseen); n > 0 {
		ws.unseen = ws.unseen[:n-1]
	}
}

// full reports whether no worker is free. Of more tasks than there are workers, the oldest must have ended.
func (ws *workers) full() bool {
	for len(ws.unseen) > 0 && (ws.busy+len(ws.unseen) > ws.total || time.Since(ws.unseen[0]) > unseenFor) {
		ws.unseen = ws.unseen[1:]
	}
	return ws.busy+len(ws.unseen) >= ws.total
}

// join counts a worker as busy until ctx ends, when asynq gives up on it, or stop is called.
func (ws *workers) join(ctx context.Context) (w *worker, stop func()) {
	w = &worker{of: ws}
	ws.mu.Lock()
	ws.sawOne()
	ws.busy++
	ws.makeRoom(false)
	ws.mu.Unlock()
	ended := context.AfterFunc(ctx, w.leave)
	return w, func() { ended(); w.leave() }
}

func (w *worker) leave() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.leaveNow()
}

func (w *worker) leaveNow() {
	if !w.left {
		w.left = true
		w.of.busy--
	}
}

// errYield is the cause of the end of a wait that somebody else's task put an end to.
var errYield = errors.New("its worker is needed")

// works notes that the worker's task runs. If it has not waited, there are others than those that do, which so give way
// at once.
func (w *worker) works() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.key == "" {
		w.of.makeRoom(true)
	}
}

// wait returns a context for a wait for key, which ends when the worker is needed for another task: at once, maybe.
func (w *worker) wait(ctx context.Context, key string) context.Context {
	ctx, cancel := context.WithCancelCause(ctx) // ends with the task, for a lease's context may come from it
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.key, w.yield = key, func() { cancel(errYield) }
	w.of.waiting = append(w.of.waiting, w)
	if w.of.resting[key].After(time.Now()) {
		w.of.giveWay(len(w.of.waiting) - 1)
	}
	w.of.makeRoom(false)
	return ctx
}

// waited ends the wait, and reports whether the worker was needed before.
func (w *worker) waited() (yielded bool) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	i := slices.Index(w.of.waiting, w)
	if i < 0 {
		return true
	}
	w.of.waiting = slices.Delete(w.of.waiting, i, i+1)
	return false
}

// makeRoom has a worker that waits give way if none is free: now, or soon.
func (ws *workers) makeRoom(now bool) {
	if !ws.full() || ws.soon && !now {
		return
	}
	i := ws.next()
	if i < 0 {
		return
	}
	if !now {
		if rest := ws.explore.Reserve().Delay(); rest > 0 {
			ws.soon = true
			time.AfterFunc(rest, ws.makeRoomAtLast)
			return
		}
	}
	ws.giveWay(i)
}

// giveWay ends a wait.
func (ws *workers) giveWay(i int) {
	w := ws.waiting[i]
	ws.waiting = slices.Delete(ws.waiting, i, i+1)
	w.leaveNow()
	w.yield()
}

func (ws *workers) makeRoomAtLast() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.soon = false
	ws.makeRoom(true)
}

// next is who gives way next: of those that are not the only one for their key the one that came last, so that each key
// goes on; then whoever came last, but for a quarter of the workers. -1 = nobody has to.
func (ws *workers) next() int {
	for i, w := range slices.Backward(ws.waiting) {
		if slices.ContainsFunc(ws.waiting[:i], func(other *worker) bool { return other.key == w.key }) {
			return i
		}
	}
	if len(ws.waiting) > ws.total/4 {
		return len(ws.waiting) - 1
	}
	return -1
}

// before is how many wait in place for key.
func (ws *workers) before(key string) (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.waiting {
		if w.key == key {
			n++
		}
	}
	return n
}
