package httplock

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

var campaignRequests = flag.Int("campaign.requests", 900, "how many random requests TestCampaign sends")

// A campaign is what random handlers have done, and what clients were answered.
type campaign struct {
	*world
	mu       sync.Mutex
	runs     int
	lost     map[int]bool   // runs
	answered map[string]int // Idempotency-Keys: the run whose answer a client has
	statuses map[string]int
}

const campaignWait = 2 * time.Second

// handle answers at random, and loses a lease at a random point. The answer names the run.
func (c *campaign) handle(random func() *rand.Rand) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.runs++
		run := c.runs
		c.mu.Unlock()
		rnd := random()
		w.Header().Set("X-Run", strconv.Itoa(run))
		lose := func() {
			if rnd.IntN(12) > 0 {
				return
			}
			c.mu.Lock()
			c.lost[run] = true
			c.mu.Unlock()
			lease, _ := core.FromContext(r.Context())
			if key := r.Header.Get("Idempotency-Key"); key != "" && rnd.IntN(2) == 0 {
				if once, ok := c.locker.Holding(r.Context(), onceKey("PUT", r.Header.Get("X-Route"), key)); ok {
					lease = once
				}
			}
			lease.Extend(1)
			<-lease.Context().Done()
		}
		if rnd.IntN(3) == 0 {
			w.WriteHeader([]int{200, 201, 202, 204, 205, 400, 404, 429, 500, 503}[rnd.IntN(10)])
		}
		for range rnd.IntN(4) {
			switch rnd.IntN(8) {
			case 0:
				w.(http.Flusher).Flush()
			case 1:
				io.Copy(w, strings.NewReader(large))
			case 2:
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond) // of the bubble
			case 3:
				if rnd.IntN(20) == 0 {
					w.Write(make([]byte, streamsFrom+1))
				}
			case 4:
				if rnd.IntN(4) == 0 {
					panic(http.ErrAbortHandler)
				}
			default:
				fmt.Fprintf(w, "run %d, ", run)
			}
			lose()
		}
		lose()
	}
}

// request sends one request at random, and judges the answer.
func (c *campaign) request(rnd *rand.Rand, servers []*server, route string, swallows bool) {
	protocol := protocols[rnd.IntN(3)]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaves := rnd.IntN(10) == 0
	if leaves {
		time.AfterFunc(time.Duration(rnd.IntN(200))*time.Millisecond, cancel)
	}
	key := ""
	if rnd.IntN(2) == 0 {
		c.mu.Lock()
		key = fmt.Sprint("k", rnd.IntN(c.runs/3+10))
		c.mu.Unlock()
	}
	id := rnd.IntN(4)
	if key != "" {
		id = int(key[len(key)-1]) % 4
	}
	began := time.Now()
	got := servers[rnd.IntN(len(servers))].do(ctx, protocol, "PUT", fmt.Sprint("/orders/", id), "body", "Idempotency-Key", key, "X-Route", route)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	run, _ := strconv.Atoi(got.header.Get("X-Run"))
	c.statuses[fmt.Sprintf("%d %v", got.status, got.err == nil)]++
	if most := campaignWait + 500*time.Millisecond + settling + time.Second; took > most {
		c.Errorf("%s, key %q: answered after %v", protocol, key, took)
	}
	if got.whole() && (c.lost[run] || run == 0 && !swallows) { // the swallowed panic of a handler is an empty answer
		c.Errorf("%s, key %q: a complete %d of run %d, which lost a lease", protocol, key, got.status, run)
	}
	if !leaves && got.err == nil && got.status >= 500 && got.status != 503 && got.status != 500 {
		c.Errorf("%s, key %q: %d %q", protocol, key, got.status, got.body)
	}
	asks := got.status == 429 || got.status == 503
	if key == "" || got.err != nil || run == 0 || asks {
		return
	}
	if first, ok := c.answered[key]; ok && first != run {
		c.Errorf("%s, key %q: answered by run %d, and before by run %d", protocol, key, run, first)
	}
	c.answered[key] = run
}

// Random requests over three protocols at two replicas, with handlers of every shape, clients that leave and losses at every
// point: no loss makes a complete success, an Idempotency-Key has one answer, and every answer comes in time.
func TestCampaign(t *testing.T) {
	for i, host := range hosts {
		t.Run(host.name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				c := &campaign{world: w, lost: map[int]bool{}, answered: map[string]int{}, statuses: map[string]int{}}
				seeds := rand.New(rand.NewPCG(uint64(i), 1))
				random := func() *rand.Rand {
					c.mu.Lock()
					defer c.mu.Unlock()
					return rand.New(rand.NewPCG(seeds.Uint64(), 1))
				}
				var servers []*server
				for range 2 {
					l := w.holding()
					w.locker = l
					m := middleware(w, l, ByParam("id"), WithIdempotency(false), WithMaxWait(campaignWait))
					servers = append(servers, w.serve(host.handler(m, c.handle(random))))
				}
				route := hostPath
				if !strings.HasPrefix(host.name, "gin") {
					route = "/orders/{id}"
				}
				var all sync.WaitGroup
				for range 6 {
					rnd := random()
					all.Go(func() {
						for range *campaignRequests / len(hosts) / 6 {
							c.request(rnd, servers, route, swallowed(host))
						}
					})
				}
				all.Wait()
				c.mu.Lock() // handlers whose clients have left may be at work
				defer c.mu.Unlock()
				t.Logf("%d runs, %d of them lost a lease; %v", c.runs, len(c.lost), c.statuses)
				if c.runs == 0 || len(c.lost) == 0 {
					w.Error("nothing happened")
				}
			})
		})
	}
}
