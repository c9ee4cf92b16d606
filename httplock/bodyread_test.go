package httplock

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"
)

// What Once has read takes no place once more.
func TestBodiesAreReadOnce(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxBodies(1))
		r := router()
		r.POST("/slow/:id", m.Lock, text("ran"))
		var slow func() reply
		r.POST("/orders/:id", m.Once, func(*gin.Context) {
			slow = background(func() reply { return callWithBody(context.Background(), r, "/slow/1", &trickle{100}) })
			synctest.Wait()
		}, m.Lock, text("ran"))
		call(r, "POST", "/orders/1", "body", "Idempotency-Key", "k").ok(w, "ran")
		slow().expect(w, 408, EventBodyTimeout)
	})
}

// A reader of somebody's own that panics takes no place for ever.
func TestBodyThatPanics(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxBodies(1))
		r := router()
		r.POST("/orders/:id", m.Lock, text("ran"))
		if got := callWithBody(context.Background(), r, "/orders/1", panicking{}); got.status != 500 {
			w.Errorf("%+v", got)
		}
		call(r, "POST", "/orders/1", "body").ok(w, "ran")
	})
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("broken") }

// A function that takes a body which is too large for one that lacks a field makes no key, and spoils no form.
func TestKeyOfAFormThatIsTooLarge(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithBodyLimit(100), ByFunc(func(c *gin.Context) (string, error) { return "order " + c.PostForm("id"), nil }))
		r := router()
		r.POST("/orders", m.Lock, func(c *gin.Context) { c.String(200, c.PostForm("id")) })
		form := []string{"Content-Type", "application/x-www-form-urlencoded"}
		call(r, "POST", "/orders", "id=42", form...).ok(w, "42")
		large := "id=42&more=" + strings.Repeat("x", 100)
		call(r, "POST", "/orders", large, form...).expect(w, 413, EventBodyTooLarge)
		callWithBody(context.Background(), r, "/orders", io.MultiReader(strings.NewReader(large)), form...).expect(w, 413, EventBodyTooLarge)
	})
}
