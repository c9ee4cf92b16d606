package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	goalSick      = 1.8 // times what the good one takes alone, on bare asynq
	goalSickTaken = 15  // percent of the tasks
	sickLimit     = 25 * time.Second
)

var sickTasks = batch{kind: "task", tasks: 400, lasts: 100 * time.Millisecond}

// sickServer has a server beside one that cannot reach the lock nodes.
func sickServer(ctx context.Context, _ config) ([]section, error) {
	s := section{
		title: "A server without locks",
		text: fmt.Sprintf(`%d tasks of %v with keys of their own, on servers with a Concurrency of %d and asynq's defaults otherwise; locks are on
%d nodes. Beside the good server there is one that reaches asynq but no lock node: its connections are refused, or accepted
and never answered. Took: how many deliveries that one was handed. A run ends after %v.`,
			sickTasks.tasks, sickTasks.lasts, queueConcurrency, queueNodes, sickLimit),
	}
	t := table{head: []string{"servers", "nine tenths done after", "all done after", "to bare asynq", "the other took"}, text: 0}
	silent, hangUp, err := silentPorts(queueNodes)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	var bare time.Duration
	for _, c := range []struct {
		servers string
		nodes   int
		cutOff  []string
	}{
		{"the good one alone, bare asynq", 0, nil},
		{"the good one alone", queueNodes, nil},
		{"beside one without locks, refused", queueNodes, closedPorts},
		{"beside one without locks, silent", queueNodes, silent},
	} {
		run := queueRun{servers: 1, concurrency: queueConcurrency, nodes: c.nodes, cutOff: c.cutOff, batches: []batch{sickTasks}, limit: sickLimit}
		w, err := run.run(ctx)
		if err != nil {
			return nil, err
		}
		done, took := w.finishes[sickTasks.kind], "–"
		if c.nodes == 0 {
			bare = done.after
		}
		if c.cutOff != nil {
			took = strconv.Itoa(w.deliveries[1])
			s.goals = append(s.goals, sickGoals(c.servers, done, bare, w.deliveries[1])...)
		}
		t.add(c.servers, short(done.most), done.String(), done.ratio(bare), took)
	}
	s.add("", &t)
	return []section{s}, nil
}

func sickGoals(servers string, done finish, bare time.Duration, took int) []*goal {
	in := &goal{what: "a server " + servers + ": all done, to the good one alone on bare asynq", want: fmt.Sprintf("≤ %v×", goalSick)}
	in.add(lockkitQueue, done.String()+", "+done.ratio(bare), done.within(time.Duration(goalSick*float64(bare))))
	most := sickTasks.tasks * goalSickTaken / 100
	few := &goal{what: "a server " + servers + ": deliveries that the other took", want: fmt.Sprintf("≤ %d of %d tasks", most, sickTasks.tasks)}
	few.add(lockkitQueue, strconv.Itoa(took), took <= most)
	return []*goal{in, few}
}

// closedPorts are of lock nodes that refuse connections: nobody listens below 1024 unless the system was set up so.
var closedPorts = []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}

// silentPorts are of lock nodes that answer nothing: the system accepts connections, and nobody serves them.
func silentPorts(n int) (addrs []string, closeAll func(), err error) {
	var all []net.Listener
	closeAll = func() {
		for _, l := range all {
			_ = l.Close()
		}
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		all, addrs = append(all, l), append(addrs, l.Addr().String())
	}
	return addrs, closeAll, nil
}
