// Promises plays the faults of docs/what-happens.md on three real nodes and three processes of the service example under
// traffic, and judges each promise of that page that these can show.
//
//	make promises                       # two minutes
//	make promises DURATION=1h SEED=7    # round and round, in another order
//	go run ./examples/whathappens/promises -only "killed,cut off"
//
// The document is the list of promises: the program finds each passage that it judges in the document, and the times in it
// are the times by which it judges. What three servers cannot show is printed with the test that shows it. A row that is
// neither judged nor shown by a test is an error, and so is a sentence of a judged row that nothing judges.
//
// Beside the promises of a row, a referee judges what always holds: no two processes have a live lease on a key at a time,
// tokens grow, and no tick is started too often. It only uses what the processes saw, by the one clock of the machine.
//
// The exit status is 1 if a promise was broken; the events of that scene are then in a file. A promise that a machine which
// is too slow may have broken is not judged: the scene is played again, up to three times. Timers that fire late show how
// slow the machine is.
//
// -break shows that the program finds what is broken: "deaf", a service that ignores the contexts of its leases; "guard", a
// service without the restart guard; "figures", a document with other times.
//
// With -nemesis (make nemesis), it draws faults of all kinds instead, and judges only what holds whatever happens: see package
// nemesis. Its clients are processes of this program, with the service on top of their Lockers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/examples/whathappens/nemesis"
	"github.com/lockkit/lockkit/testutil"
)

// What is broken on purpose.
const (
	breakDeaf    = "deaf"
	breakGuard   = "guard"
	breakFigures = "figures"
)

// tries is how often a scene is played until all its promises are judged.
const tries = 3

func main() {
	gin.SetMode(gin.ReleaseMode)
	if text, ok := os.LookupEnv(roleEnv); ok {
		of, err := readRole(text)
		stage.PlayTold(of.Name, func(orders io.Reader) error { return errors.Join(err, of.play(orders, os.Stdout)) })
		return
	}
	if text, ok := os.LookupEnv(nemesis.RoleEnv); ok {
		stage.PlayTold("client", func(orders io.Reader) error { return nemesis.Play(text, orders, os.Stdout, startAdapters) })
		return
	}
	var o options
	flag.DurationVar(&o.length, "for", 2*time.Minute, "how long to play scenes")
	flag.Uint64Var(&o.seed, "seed", 0, "order and variation of scenes; 0: another one each time")
	flag.StringVar(&o.page, "page", "docs/what-happens.md", "the document")
	flag.StringVar(&o.only, "only", "", "names of scenes, with commas; each is played once")
	flag.StringVar(&o.breaks, "break", "", "what to break on purpose: deaf, guard or figures; with -nemesis: guard, context or tokens")
	random := nemesis.Options{Out: os.Stdout}
	atRandom := flag.Bool("nemesis", false, "draw faults of all kinds instead, on one, three and five servers")
	flag.IntVar(&random.Only, "part", 0, "with -nemesis: the one part to run")
	flag.StringVar(&random.Lock, "lock", "lockkit", "with -nemesis: the lock to test: lockkit or set-nx")
	flag.StringVar(&random.Shim, "shim", "", "with -nemesis: the library that moves the clocks of servers")
	flag.BoolVar(&random.Moved, "moved", false, "with -nemesis: this program was built with clocks that can be moved")
	flag.StringVar(&random.Docs, "docs", "", "with -nemesis: the directory in which to fill in proof.md")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano() % 1e6)
	}
	if *atRandom {
		random.Length, random.Seed, random.Break = o.length, o.seed, o.breaks
		stage.Run("nemesis", func(ctx context.Context) error { return nemesis.Run(ctx, random) })
		return
	}
	stage.Run("promises", func(ctx context.Context) error { return run(ctx, o) })
}

type options struct {
	length             time.Duration
	seed               uint64
	page, only, breaks string
}

func run(ctx context.Context, o options) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what nodes do is the subject
	if !testutil.ServerAvailable() {
		return errors.New("no redis-server on PATH: make tools installs it")
	}
	page, err := readPage(o.page)
	if err != nil {
		return err
	}
	if o.breaks == breakFigures {
		page = otherFigures(page)
	}
	plans, err := match(page, rows(scenes))
	if err != nil {
		return err
	}
	fmt.Printf("promises of %s for %v, seed %d\n", o.page, o.length, o.seed)
	random := rand.New(rand.NewPCG(o.seed, 0))
	w, err := newWorld(ctx, random, o.breaks)
	if err != nil {
		return err
	}
	defer w.close()

	c := newClient(w)
	going, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); c.run(going, rand.New(rand.NewPCG(o.seed, 1))) }()
	r := &runner{world: w, client: c, table: newTable(plans), out: os.Stdout}
	err = r.rounds(ctx, o)
	stop()
	<-ended
	r.table.print(os.Stdout)
	return errors.Join(err, r.table.verdict())
}

// otherFigures makes every time of the document half a second.
func otherFigures(page []pageRow) []pageRow {
	for i := range page {
		for _, cell := range []*string{&page[i].holder, &page[i].callers} {
			*cell = times.ReplaceAllString(*cell, "0.5 s")
			*cell = ranges.ReplaceAllString(*cell, "0.1 to 0.5 s")
		}
	}
	return page
}

// A runner plays scenes.
type runner struct {
	*world
	client *client
	table  *table
	out    io.Writer
	plays  int
}

// rounds plays all scenes again and again, in another order each time, until the time is over. A scene that does not fit
// into what is left of the time is left out.
func (r *runner) rounds(ctx context.Context, o options) error {
	begin := time.Now()
	for round := 1; ; round++ {
		order, once := pick(r.random, o.only)
		played := 0
		for _, s := range order {
			if !once && time.Since(begin)+s.takes > o.length {
				continue
			}
			played++
			err := r.judged(func() ([]result, error) { return r.play(ctx, s) })
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round, s.name, err)
			}
		}
		if once || played == 0 {
			return nil
		}
	}
}

// pick returns the scenes of a round. Those that were named are played once.
func pick(random *rand.Rand, only string) (order []*scene, once bool) {
	for _, s := range scenes {
		if only == "" || slices.Contains(strings.Split(only, ","), s.name) {
			order = append(order, s)
		}
	}
	if only == "" {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order, only != ""
}

// judged plays a scene until each of its promises is judged, but not too often.
func (r *runner) judged(play func() ([]result, error)) error {
	for try := 1; ; try++ {
		results, err := play()
		if err != nil {
			return err
		}
		r.table.add(results)
		if try == tries || !slices.ContainsFunc(results, func(r result) bool { return r.verdict == notJudged }) {
			return nil
		}
		fmt.Fprintf(r.out, "  the machine was too slow: once more\n")
	}
}

// play plays a scene and judges it.
func (r *runner) play(ctx context.Context, s *scene) ([]result, error) {
	r.plays++
	record := r.begin()
	playing, end := context.WithCancel(ctx)
	p := &play{world: r.world, client: r.client, ctx: playing, n: r.plays, alone: map[string]bool{}}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go lateWatch{r.world.add}.run(watch)

	began := time.Now()
	clock := began.Round(0) // the wall clock, by which processes say when things happened
	err := s.play(p)
	end()
	p.work.Wait()
	stepped := time.Since(began) - time.Now().Round(0).Sub(clock)
	events := record.sorted()
	if err == nil {
		err = r.heal(ctx)
	}
	if err != nil {
		name, saved := save(record.sorted())
		return nil, errors.Join(err, saved, fmt.Errorf("the events are in %s", name))
	}
	results := s.judge(seen{events}, r.table.page, referee{alone: p.alone, ticks: !s.forgets})
	if max(stepped, -stepped) > clockStep {
		distrust(results, "the machine's clock was set")
	}
	fmt.Fprintf(r.out, "%s, %s, timers late by %d ms at most:\n", s.name, seconds(time.Since(began)), seen{events}.late().Milliseconds())
	for _, found := range results {
		fmt.Fprintf(r.out, "  %-10s %s\n", found.verdict, found.brief())
	}
	if slices.ContainsFunc(results, func(r result) bool { return r.verdict == broken }) {
		name, err := save(events)
		fmt.Fprintf(r.out, "  the events are in %s\n", name)
		return results, err
	}
	return results, nil
}

// clockStep is by how much the wall clock may differ from the time that passes.
const clockStep = 20 * time.Millisecond
