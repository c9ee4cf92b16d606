package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// zipped compresses answers as gin-contrib/gzip does, with a writer that hides the connection: it has no Unwrap.
func zipped(c *gin.Context) {
	w := &zipWriter{c.Writer, gzip.NewWriter(c.Writer)}
	c.Header("Content-Encoding", "gzip")
	c.Writer = w
	c.Next()
	w.zip.Close()
}

type zipWriter struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (w *zipWriter) Write(b []byte) (int, error)       { return w.zip.Write(b) }
func (w *zipWriter) WriteString(s string) (int, error) { return w.zip.Write([]byte(s)) }

// loss shows what a client is told whose request lost its lock after the handler had written "updated": whatever it is, it
// must not be taken for a success.
func loss(ctx context.Context) (err error) {
	fmt.Printf("\nthe lock is lost after the handler has written its answer, and the handler does not look\n\n")
	for name, outside := range map[string]gin.HandlerFunc{"plain": func(c *gin.Context) { c.Next() }, "behind gzip": zipped} {
		answer, err := answerAfterLoss(ctx, outside)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s%s\n", name, answer)
		if strings.HasPrefix(answer, "200") {
			return fmt.Errorf("%s: a clean answer after a loss", name)
		}
	}
	return nil
}

func answerAfterLoss(ctx context.Context, outside gin.HandlerFunc) (answer string, err error) {
	node := testutil.StartNode()
	defer node.Close()
	locks, err := core.New([]redis.UniversalClient{node.Client()}, core.TTL(time.Second), core.WithClockWindow(100*time.Millisecond),
		core.WithLogger(slog.New(slog.DiscardHandler))) // it would say that the lock was lost
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	byID, err := httplock.New(locks, "orders", httplock.ByParam("id"))
	if err != nil {
		return "", err
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(outside, gin.RecoveryWithWriter(io.Discard)) // it would log that the connection was broken
	r.PUT("/orders/:id", byID.Lock, func(c *gin.Context) {
		c.String(http.StatusOK, "updated")
		node.Hang()
		<-c.Request.Context().Done()
		node.Up()
	})
	server := httptest.NewServer(r)
	defer server.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/orders/1", strings.NewReader("one more"))
	if err != nil {
		return "", err
	}
	res, err := server.Client().Do(req)
	if err != nil {
		return "the connection breaks", ctx.Err()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "the connection breaks", ctx.Err()
	}
	return fmt.Sprintf("%s: %s", res.Status, body), nil
}
