package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/examples/whathappens/nemesis"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/otel/otellock"
	"github.com/lockkit/lockkit/queuelock"
)

// A role is what a process of the service is told when it starts.
type role struct {
	Name  string
	Nodes []string // URLs, through proxies of its own
	Queue string   // the address of asynq's Redis
	Break string   // see breaks
}

// A service is a process of the service example, examples/minimal/service, wired as that one is. Its handlers, tasks and
// runs take time, and tell the program what they see; the program also gives it orders (orders.go).
type service struct {
	role
	*teller
	locker *core.Locker
	tasks  *queuelock.Middleware
	client *asynq.Client
	cron   *cronlock.Service
	calls  *calls
	ends   []end
	addr   string          // of the HTTP server
	worker *nemesis.Client // does the work in a client of the nemesis; otherwise nil
}

// An end waits until work has ended, or until ctx ends.
type end func(ctx context.Context) error

// play is main of a process of the service. It ends when its orders do.
func (r role) play(in io.Reader, out io.Writer) error {
	s := &service{role: r, teller: newTeller(r.Name, out)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go lateWatch{s.say}.run(ctx)

	if err := s.open(); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	s.calls = newCalls(s)
	s.calls.follow(in)

	ending, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return s.shutdown(ending)
}

// start starts the server, the worker and the job.
func (s *service) start() error {
	for _, start := range []func() (end, error){s.serve, s.work, s.schedule} {
		end, err := start()
		if err != nil {
			return err
		}
		s.ends = append(s.ends, end)
	}
	return nil
}

func (s *service) open() error {
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	observer, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))))
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(logLines{s.teller}, nil)))
	options := []core.Option{core.WithObserver(observer)}
	if s.Break == breakGuard {
		options = append(options, core.WithRestartGuard(false))
	}
	if s.locker, err = core.Open(s.Nodes, options...); err != nil {
		return err
	}
	s.tasks, err = queuelock.New(s.locker, queuelock.WithKey(queuelock.ByPayloadField("order")))
	return err
}

// shutdown is that of the service example.
func (s *service) shutdown(ctx context.Context) (err error) {
	ended := make(chan error, len(s.ends))
	for _, end := range s.ends {
		go func() { ended <- end(ctx) }()
	}
	for range s.ends {
		err = errors.Join(err, <-ended)
	}
	s.ends = nil
	return errors.Join(err, s.locker.Close(ctx))
}

func (s *service) serve() (end, error) {
	charges, err := httplock.New(s.locker, "shop", httplock.ByParam("id"), httplock.WithIdempotency(true, httplock.NoSender))
	if err != nil {
		return nil, err
	}
	orders, err := httplock.New(s.locker, "shop", httplock.ByKey(func(r *http.Request) (string, error) {
		c, _ := httplock.GinContext(r)
		return c.Param("id"), nil // the key of calls of core
	}))
	if err != nil {
		return nil, err
	}
	s.client = asynq.NewClient(asynq.RedisClientOpt{Addr: s.Queue})
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	r.GET("/health", func(c *gin.Context) { answer(c, s.locker.Ready(c.Request.Context())) })
	r.POST("/orders/:id/charges", charges.Lock, s.charge)
	r.PUT("/orders/:id", orders.Lock, s.handle)
	r.POST("/orders/:id/stream", orders.Lock, s.stream)
	server := &http.Server{Handler: httplock.Arrived(r), ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	server.RegisterOnShutdown(charges.Drain)
	server.RegisterOnShutdown(orders.Drain)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go server.Serve(l)
	s.addr = l.Addr().String()
	s.say(event{Kind: isReady, Text: s.addr})
	return func(ctx context.Context) error {
		return errors.Join(server.Shutdown(ctx), charges.Close(ctx), orders.Close(ctx), s.client.Close())
	}, nil
}

func answer(c *gin.Context, err error) {
	if err != nil {
		c.JSON(http.StatusServiceUnavailable, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusOK, gin.H{"ok": true})
}

// handle works for as long as the query says, and responds as it says.
func (s *service) handle(c *gin.Context) {
	s.works(c.Request.Context(), event{Op: c.Query("op")}, lasts(c.Query("work")))
	switch status := c.Query("status"); {
	case c.Query("panic") != "":
		panic("as told")
	case status != "":
		code, _ := strconv.Atoi(status)
		if c.Query("retry") != "" {
			c.Header("Retry-After", "1")
		}
		c.JSON(code, gin.H{"by": s.Name})
	default:
		c.JSON(http.StatusOK, gin.H{"by": s.Name})
	}
}

// charge enqueues the charge of an order, once for each request, as in the service example.
func (s *service) charge(c *gin.Context) {
	if c.Query("task") != "" {
		run, _ := httplock.FromContext(c.Request.Context())
		payload, _ := json.Marshal(charge{Op: "task of " + c.Query("op"), Order: c.Param("id")})
		_, err := s.client.EnqueueContext(c.Request.Context(), asynq.NewTask("charge", payload), queuelock.ID("charge", run.Identity))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			answer(c, err)
			return
		}
	}
	s.handle(c)
}

// stream writes until that fails.
func (s *service) stream(c *gin.Context) {
	op := c.Query("op")
	deaf := context.WithoutCancel(c.Request.Context()) // it is its writes that end it
	go s.works(c.Request.Context(), event{Op: op}, time.Minute)
	c.Status(http.StatusOK)
	for {
		_, err := c.Writer.WriteString("more\n")
		if err == nil {
			err = http.NewResponseController(c.Writer).Flush()
		}
		if err != nil {
			s.say(event{Kind: isStream, Op: op, Err: classOf(err), Text: err.Error()})
			return
		}
		_ = stage.Sleep(deaf, 100*time.Millisecond)
	}
}

func lasts(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

// A charge is the payload of a task.
type charge struct {
	Op    string        `json:"op"`
	Order string        `json:"order"`
	Work  time.Duration `json:"work"`
}

func (s *service) work() (end, error) {
	cfg := asynq.Config{Concurrency: 20, ShutdownTimeout: 2 * time.Second, LogLevel: asynq.FatalLevel}
	if err := s.tasks.Configure(&cfg); err != nil { // last, before NewServer
		return nil, err
	}
	mux := asynq.NewServeMux()
	mux.Use(s.tasks.Middleware)
	mux.HandleFunc("charge", func(ctx context.Context, t *asynq.Task) error {
		var of charge
		if err := json.Unmarshal(t.Payload(), &of); err != nil {
			return err
		}
		return s.works(ctx, event{Op: of.Op}, of.Work)
	})
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: s.Queue}, cfg)
	return func(ctx context.Context) error {
		done, stop := context.WithCancel(ctx)
		go func() { server.Shutdown(); stop() }()
		<-done.Done()
		return nil
	}, server.Start(mux)
}

func (s *service) schedule() (end, error) {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return nil, err
	}
	if s.cron, err = cronlock.New(s.locker, "shop"); err != nil {
		return nil, err
	}
	_, err = gocronlock.Add(scheduler, s.cron, "report", cronlock.Every(2*time.Second), func(ctx context.Context) error {
		return s.run(ctx, 500*time.Millisecond, 1)
	})
	if err != nil {
		return nil, err
	}
	scheduler.Start()
	return func(ctx context.Context) error {
		return errors.Join(scheduler.ShutdownWithContext(ctx), s.cron.Close(ctx))
	}, nil
}

// run is the work of a cron job that may start a tick so often.
func (s *service) run(ctx context.Context, work time.Duration, starts int) error {
	run, _ := cronlock.FromContext(ctx)
	return s.works(ctx, event{Op: run.Job, Tick: run.Tick, Attempt: run.Attempt, Status: starts}, work)
}

// workload names what is on top of the lock.
func (e event) workload() string {
	switch {
	case !e.Tick.IsZero():
		return "cron job"
	case strings.HasPrefix(e.Op, "task"):
		return "tasks"
	}
	return "requests"
}

// works holds the lease of a context for d, or until the context ends, and says so.
func (s *service) works(ctx context.Context, of event, d time.Duration) error {
	if s.worker != nil {
		return s.worker.Under(ctx, of.workload(), of.Op, of.Tick, d)
	}
	lease, ok := core.FromContext(ctx)
	if !ok {
		return errors.New("no lease")
	}
	of.Key, of.Token = lease.Key(), lease.FencingToken()
	of.Kind = isWork
	s.say(of)
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(done) })
	defer timer.Stop()
	s.hold(ctx, of, done, s.Break == breakDeaf)
	of.Kind = isDone
	if s.Break != breakDeaf {
		of.Err, of.Reason = classOf(context.Cause(ctx)), reasonOf(context.Cause(ctx))
	}
	s.say(of)
	if s.Break == breakDeaf {
		return nil
	}
	return ctx.Err()
}

// A teller tells the program what happens in this process, as lines of JSON.
type teller struct {
	name string
	mu   sync.Mutex
	out  *json.Encoder
}

func newTeller(name string, out io.Writer) *teller {
	return &teller{name: name, out: json.NewEncoder(out)}
}

// say adds the time, unless the event has one.
func (t *teller) say(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Process = t.name
	t.out.Encode(e) // fails when the program is dead, and then this process ends as well
}

// livePeriod is how often a holder looks at its context, and says that it is live.
const livePeriod = 200 * time.Millisecond

// hold says for how long a context is live: until it ends or done is closed. A deaf one does not look at it.
func (t *teller) hold(ctx context.Context, of event, done <-chan struct{}, deaf bool) {
	ticks := time.NewTicker(livePeriod)
	defer ticks.Stop()
	over := ctx.Done()
	if deaf {
		over = nil
	}
	for {
		live := of
		live.Kind, live.At = isLive, time.Now() // read before the look: if it is live then, it was so at this time
		if ctx.Err() != nil && !deaf {
			return
		}
		t.say(live)
		select {
		case <-ticks.C:
		case <-over:
			return
		case <-done:
			return
		}
	}
}

// logLines makes events of what is logged.
type logLines struct{ *teller }

func (l logLines) Write(line []byte) (int, error) {
	l.say(event{Kind: isLog, Text: string(line)})
	return len(line), nil
}
