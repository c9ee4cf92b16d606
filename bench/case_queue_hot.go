package main

import (
	"context"
	"fmt"
	"time"
)

const (
	lockkitQueue = "lockkit/queuelock"
	bareAsynq    = "bare asynq, one worker"

	queueConcurrency = 10 // of each server
	queueNodes       = 3  // for locks

	hotPatience = 3 // times the ideal
	goalHot     = 1.5
	goalOthers  = 2 // times without the hot key
)

// A hotShape is tasks of one key.
type hotShape struct {
	batch
	servers int
}

func hotTasks(tasks int, lasts time.Duration, servers int) hotShape {
	return hotShape{batch{"hot", "hot", tasks, lasts}, servers}
}

func (h hotShape) String() string {
	return fmt.Sprintf("%s of %v, %d servers", plural(h.tasks, "task"), h.lasts, h.servers)
}

var (
	hotFirst = hotTasks(60, 100*time.Millisecond, 2)
	// The long ones run beside the others: they leave the machine idle.
	hotLong = []hotShape{hotTasks(12, 3*time.Second, 2)}
	hotRest = []hotShape{hotTasks(1000, 10*time.Millisecond, 2), hotTasks(60, 100*time.Millisecond, 4), hotTasks(300, 100*time.Millisecond, 4)}

	others = batch{kind: "other", tasks: 200, lasts: 20 * time.Millisecond}
)

// hotKeys has servers work off many tasks of one key.
func hotKeys(ctx context.Context, _ config) ([]section, error) {
	s := section{
		title: "A hot key",
		text: fmt.Sprintf(`All tasks have one key. They are enqueued, and then the servers start, with a Concurrency of %d each and asynq's defaults
otherwise; locks are on %d nodes. Ideal: one after the other without a pause. Bare: asynq alone with a single worker, which
is how it would keep them apart. A run ends after %d× the ideal. Others: %d tasks of %v with keys of their own,
enqueued behind the first shape; the last row has them without it. Deliveries: how often asynq handed a task to a server,
of all tasks of the run. asynq's Redis: CPU of its process, of one core, which the shape with the most redeliveries, 300 tasks on 4
servers, keeps busiest.`,
			queueConcurrency, queueNodes, hotPatience, others.tasks, others.lasts),
	}
	t := table{head: []string{"tasks", "peer", "all done after", "to ideal", "to bare", "deliveries per task", "asynq's Redis", "others done after"}, text: 0}
	lanes := [][]hotShape{append([]hotShape{hotFirst}, hotRest...), hotLong}
	rows := make([][]hotRow, len(lanes))
	errs := inParallel(len(lanes), func(i int) (err error) {
		rows[i], err = hotLane(ctx, lanes[i])
		return err
	})
	if errs != nil {
		return nil, some(errs)
	}
	alone, err := behindLocks(hotFirst.servers, others.alone(), others).run(ctx)
	if err != nil {
		return nil, err
	}
	without := alone.finishes[others.kind]
	for _, lane := range rows {
		for _, r := range lane {
			t.add(r.cells(lockkitQueue, r.locks)...)
			t.add(r.cells(bareAsynq, r.bare)...)
			s.goals = append(s.goals, r.goals(without)...)
		}
	}
	t.add("none", lockkitQueue, "–", "–", "–", "–", "–", without.String())
	s.add("", &t)
	return []section{s}, nil
}

// A hotRow is what was measured of a shape.
type hotRow struct {
	hotShape
	locks, bare worked
}

// hotLane measures one shape after the other.
func hotLane(ctx context.Context, shapes []hotShape) ([]hotRow, error) {
	var rows []hotRow
	for _, h := range shapes {
		limit := hotPatience * h.alone()
		batches := []batch{h.batch}
		if h == hotFirst {
			batches = append(batches, others)
		}
		bare, err := queueRun{servers: 1, concurrency: 1, batches: batches[:1], limit: limit}.run(ctx)
		if err != nil {
			return nil, err
		}
		locks, err := behindLocks(h.servers, limit, batches...).run(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, hotRow{h, locks, bare})
	}
	return rows, nil
}

func behindLocks(servers int, limit time.Duration, batches ...batch) queueRun {
	return queueRun{servers: servers, concurrency: queueConcurrency, nodes: queueNodes, batches: batches, limit: limit}
}

func (r hotRow) cells(peer string, w worked) []string {
	done, other := w.finishes[r.kind], "–"
	if o, ok := w.finishes[others.kind]; ok {
		other = o.String()
	}
	return []string{r.String(), peer, done.String(), done.ratio(r.alone()), done.ratio(r.bare.finishes[r.kind].after), w.perTask(), fmt.Sprintf("%.0f %%", 100*w.redis), other}
}

func (r hotRow) goals(without finish) []*goal {
	done := r.locks.finishes[r.kind]
	hot := &goal{what: "hot key, " + r.String() + ": time to the ideal", want: fmt.Sprintf("≤ %v×", goalHot)}
	hot.add(lockkitQueue, done.String()+", "+done.ratio(r.alone()), done.within(time.Duration(goalHot*float64(r.alone()))))
	other, ok := r.locks.finishes[others.kind]
	if !ok {
		return []*goal{hot}
	}
	rest := &goal{what: "hot key, " + r.String() + ": other keys, to a run without it", want: fmt.Sprintf("≤ %d×", goalOthers)}
	rest.add(lockkitQueue, other.String()+", "+other.ratio(without.after), other.within(goalOthers*without.after))
	return []*goal{hot, rest}
}

// perTask is how often asynq handed a task to a server.
func (w worked) perTask() string {
	sum := 0
	for _, n := range w.deliveries {
		sum += n
	}
	return number(float64(sum) / float64(w.enqueued))
}
