package httplock

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// A response is recorded unless it invites a retry, and then the handler does not run again. The test tries many
// statuses, with and without Retry-After, and with and without Record. Run.Identity is the same in each run, so that a
// UNIQUE column makes the effect happen once.
func TestOutcomes(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		var code int
		var later, stands bool
		var identities []string
		h := mount(m.Lock, func(c *gin.Context) {
			run, _ := FromContext(c.Request.Context())
			if identities = append(identities, run.Identity); later {
				c.Writer.Header()["Retry-After"] = []string{"", "1"}
			} else {
				c.Writer.Header()["Retry-After"] = nil // no header is sent
			}
			if stands {
				Record(c.Request)
			}
			c.String(code, "text")
		})

		for _, code = range []int{200, 201, 202, 204, 206, 299, 301, 303, 304, 399, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 412, 413, 415, 418,
			422, 423, 424, 425, 426, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 507, 511, 599} {
			for _, later = range []bool{false, true} {
				for _, stands = range []bool{false, true} {
					identities = nil
					key := fmt.Sprint(code, "-", later, "-", stands)

					first := call(h, "PUT", "/orders/1", "", "Idempotency-Key", key)
					again := call(h, "PUT", "/orders/1", "", "Idempotency-Key", key)

					invites := code >= 500 || slices.Contains([]int{401, 403, 407, 408, 423, 425, 429, 499}, code) || code >= 400 && later
					want := 1
					if invites && !stands {
						want = 2
					}

					if len(identities) != want || len(slices.Compact(identities)) != 1 || again.status != first.status || again.body != first.body {
						w.Errorf("%s: runs %q, want %d; %+v, first %+v", key, identities, want, again, first)
					}
				}
			}
		}
	})
}

// A response that is not whole is not recorded: after a panic or a loss, or if it was cut short. If the handler has
// called Record, the status alone is recorded, except after a loss.
func TestOutcomesOfWhatWentWrong(t *testing.T) { //nolint:gocognit // cases in cases
	for name, wrong := range map[string]func(c *gin.Context){
		"panic":                func(*gin.Context) { panic("wrong") },
		"panic after a status": func(c *gin.Context) { c.Status(201); panic("wrong") },
		"panic after half":     func(c *gin.Context) { c.String(200, "half"); panic(http.ErrAbortHandler) },
		"cut short":            func(c *gin.Context) { c.Header("Content-Length", "100"); c.String(200, "half") },
		"loss":                 func(c *gin.Context) { c.String(200, "half"); expire(c.Request.Context()) },
		"loss and panic":       func(c *gin.Context) { expire(c.Request.Context()); panic("wrong") },
	} {
		for _, stands := range []bool{false, true} {
			bubbleOf(t, fmt.Sprintf("%s, stands %v", name, stands), 1, func(w *world) {
				m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(true, NoSender))

				for _, host := range hosts {
					runs := 0
					s := w.serve(host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
						if runs++; runs > 1 {
							fmt.Fprint(rw, "right")
							return
						}
						if stands {
							Record(r)
						}
						c, _ := gin.CreateTestContext(rw)
						c.Request = r
						wrong(c)
					}))

					for _, protocol := range protocols {
						runs = 0
						key := fmt.Sprintf(`"%s %s"`, host.name, protocol)
						first := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
						time.Sleep(time.Minute)
						again := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)

						recovered := host.inside && strings.HasPrefix(name, "panic")
						switch loss := strings.HasPrefix(name, "loss"); {
						case stands && !loss && !recovered:
							if again.expect(w, 410, EventIdempotencyOmitted); runs != 1 {
								w.Errorf("%s: %d runs", key, runs)
							}
						case stands && !loss:
							if runs != 1 || again.status != first.status {
								w.Errorf("%s: %d runs, %+v, first %+v", key, runs, again, first)
							}
						case recovered: // the middleware sees a handler that has returned
						default:
							if again.ok(w, "right"); runs != 2 {
								w.Errorf("%s: %d runs", key, runs)
							}
						}
					}
				}
			})
		}
	}
}

// Record does nothing outside of a Lock, and without an Idempotency-Key.
func TestRecordOfNothing(t *testing.T) {
	bubble(t, 1, func(w *world) {
		Record(newRequest("POST", "/"))
		runs := 0
		h := mount(middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender)).Lock, func(c *gin.Context) { Record(c.Request); runs++ })
		call(h, "PUT", "/orders/1", "").ok(w, "")
		call(h, "PUT", "/orders/1", "").ok(w, "")
		if runs != 2 {
			w.Errorf("%d runs", runs)
		}
	})
}
