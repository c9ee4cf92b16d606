// Playground is where to see locks work, and to try to make them fail: five Redis nodes, and three replicas of a service
// with cron jobs, tasks, HTTP handlers and a semaphore that lock on them, on one page with buttons for everything that
// can go wrong.
//
//	go run ./examples/playground                        # and open the page that it names
//	go run ./examples/playground -for 1m                # plays by itself, prints what happens, and judges
//	go run ./examples/playground -for 1m -unsafe fencing
//
// The nodes are redis-server processes where that is on PATH and embedded ones otherwise, and the replicas are processes
// of this program. A judge sees what everybody was told: never two holders of a key at a time, never more holders of a
// semaphore than it has permits, no token that goes back, no stale write accepted, no update lost under a lock, no tick and
// no task done twice.
//
// Without a terminal on its standard output and without -for, it plays by itself and ends after a minute. When it plays by
// itself, the exit status is 0 if nothing of that was broken, and everything has moved.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

func main() {
	if os.Getenv(roleEnv) != "" {
		stage.PlayTold("playground: a replica", play)
		return
	}
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8321", "where to serve the page, on this machine; where it is taken, on a free port")
	flag.DurationVar(&o.length, "for", 0, "how long to play by itself; 0 = until Ctrl-C, or for a minute where standard output is no terminal")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "what chance goes by when it plays by itself")
	flag.Func("unsafe", "what to turn off: guard, fencing or guard,fencing", o.off.parse)
	flag.Parse()
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	}
	if o.length == 0 && !isTerminal(os.Stdout) {
		fmt.Printf("standard output is no terminal, so it ends after %v; -for sets how long it plays\n", unattended)
		o.length = unattended
	}
	debug.SetMemoryLimit(100 << 20) // embedded nodes make much garbage; it is swept before it is that much
	stage.Run("playground", func(ctx context.Context) error { return run(ctx, o) })
}

// unattended is how long the playground plays where nobody can press Ctrl-C.
const unattended = time.Minute

type options struct {
	addr   string
	length time.Duration
	seed   uint64
	off    Unsafe
}

// check returns what is wrong with the options, or with what is left of the command line.
func (o options) check(rest []string) (err error) {
	if len(rest) > 0 {
		err = fmt.Errorf("%q is no flag", rest[0])
	}
	if o.length < 0 {
		err = errors.Join(err, fmt.Errorf("-for %v: it cannot play for less than no time", o.length))
	}
	return err
}

func run(ctx context.Context, o options) (err error) {
	listener, err := listen(o.addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	fmt.Println("starting nodes and replicas")
	p, err := newPlayground(ctx, o.off)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	server := &http.Server{Handler: p.handler(listener.Addr()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("five nodes: %s; three replicas; %s\nopen http://%s\n", p.nodes.all.Kind, o.off, listener.Addr())

	alone := o.length > 0
	if alone {
		err = p.playAlone(ctx, o)
	} else {
		fmt.Println("Ctrl-C ends it")
		select {
		case <-ctx.Done():
		case err = <-served:
		}
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		err = nil
	}
	err = errors.Join(err, p.close(), server.Close())
	last := p.state() // all that was told is known now
	fmt.Print(last.report())
	if alone && interrupted {
		err = errors.Join(err, errors.New("interrupted before its time was over"))
	} else if alone {
		err = errors.Join(err, last.check())
	}
	return err
}

// playAlone plays the script, and prints what happens.
func (p *playground) playAlone(ctx context.Context, o options) error {
	fmt.Printf("it plays by itself for %v; the same again: -seed %d\n\n", o.length, o.seed)
	p.setEnd(time.Now().Add(o.length))
	printing, done := context.WithCancel(ctx)
	p.work.Go(func() { p.printTimeline(printing, os.Stdout) })
	defer done()
	if err := p.play(ctx, o.length, rand.New(rand.NewPCG(o.seed, 0))); err != nil {
		return err
	}
	// A busy machine may have done nothing of a kind yet. Replicas tell how they are a few times a second.
	wait, stop := context.WithTimeout(ctx, 3*patience)
	defer stop()
	_, err := p.board.await(wait, p.board.end(), func(Event) bool { return p.state().lacks() == nil })
	if wait.Err() != nil && ctx.Err() == nil {
		return nil // what is lacking is told with the verdict
	}
	return err
}

// listen listens on a loopback address, and where it is taken on a free port of it.
func listen(addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("-addr %s: %w", addr, err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		free, again := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if again != nil {
			return nil, fmt.Errorf("-addr %s: %w", addr, err)
		}
		fmt.Printf("%s cannot be had (%v); a free port instead\n", addr, err)
		listener = free
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("-addr %s: the playground serves this machine only, such as 127.0.0.1:8321", addr), listener.Close())
	}
	return listener, nil
}

// isTerminal reports whether somebody looks at a file, as far as that can be told.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// parse reads what to turn off.
func (u *Unsafe) parse(list string) error {
	for what := range strings.SplitSeq(list, ",") {
		switch what {
		case "guard":
			u.Guard = true
		case "fencing":
			u.Fencing = true
		default:
			return fmt.Errorf("%q is neither guard nor fencing", what)
		}
	}
	return nil
}
