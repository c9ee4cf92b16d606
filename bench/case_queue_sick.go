package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	goalSick      = 3  // times what the good one takes alone
	goalSickTaken = 10 // percent of the tasks
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
	t := table{head: []string{"servers", "all done after", "to the good one alone", "the other took"}, text: 0}
	good := queueRun{servers: 1, concurrency: queueConcurrency, batches: []batch{sickTasks}, limit: sickLimit}
	bare, err := good.run(ctx)
	if err != nil {
		return nil, err
	}
	good.nodes = queueNodes
	alone, err := good.run(ctx)
	if err != nil {
		return nil, err
	}
	to := alone.finishes[sickTasks.kind].after
	row := func(servers string, w worked, took string) {
		done := w.finishes[sickTasks.kind]
		t.add(servers, done.String(), done.ratio(to), took)
	}
	row("the good one alone, bare asynq", bare, "–")
	row("the good one alone", alone, "–")
	for _, how := range []string{"refused", "silent"} {
		w, err := good.besideCutOff(ctx, how == "silent")
		if err != nil {
			return nil, err
		}
		took, done := w.deliveries[1], w.finishes[sickTasks.kind]
		row("beside one without locks, "+how, w, strconv.Itoa(took))
		what := "one of two servers without locks, " + how + ": "
		in := &goal{what: what + "all done, to the good one alone", want: fmt.Sprintf("≤ %d×", goalSick)}
		in.add(lockkitQueue, done.String()+", "+done.ratio(to), done.within(goalSick*to))
		most := sickTasks.tasks * goalSickTaken / 100
		few := &goal{what: what + "deliveries that it took", want: fmt.Sprintf("≤ %d of %d tasks", most, sickTasks.tasks)}
		few.add(lockkitQueue, strconv.Itoa(took), took <= most)
		s.goals = append(s.goals, in, few)
	}
	s.add("", &t)
	return []section{s}, nil
}

// besideCutOff is run with one more server, for which the lock nodes are closed ports, or ports where nobody answers.
func (r queueRun) besideCutOff(ctx context.Context, silent bool) (worked, error) {
	for range r.nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
		if err != nil {
			return worked{}, err
		}
		if silent {
			defer l.Close()
		} else if err := l.Close(); err != nil {
			return worked{}, err
		}
		r.cutOff = append(r.cutOff, l.Addr().String())
	}
	return r.run(ctx)
}
