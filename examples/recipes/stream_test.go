package recipes

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A conversation is answered word by word. A conversation that loses its lease breaks off, so the client never takes it
// for complete.
func TestStreamedConversation(t *testing.T) {
	l := locktest.New(t, core.MaxHold(time.Hour))
	heard := make(chan bool) // the client has received the first word
	answer := func(ctx context.Context, question string) <-chan string {
		words := make(chan string)
		go func() {
			defer close(words)
			words <- "because"
			<-heard
			if question == "lose" {
				lease, _ := core.FromContext(ctx)
				_ = lease.Extend(1) // ends the lease
			}
			words <- "of that"
		}()
		return words
	}

	byID, routes, err := conversations(l.Locker, answer)
	if err != nil {
		t.Fatal(err)
	}
	defer byID.Close(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }() // as a middleware further out may do
		routes.ServeHTTP(w, r)
	}))
	defer server.Close()

	for question, whole := range map[string]bool{"why": true, "lose": false} {
		res, err := server.Client().Post(server.URL+"/conversations/"+question, "application/x-www-form-urlencoded", strings.NewReader("question="+question))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		in := bufio.NewReader(res.Body)
		if first, err := in.ReadString('\n'); err != nil || first != "data: because\n" {
			t.Errorf("%s: %q, %v", question, first, err)
		}
		heard <- true
		rest, err := io.ReadAll(in)
		if ends := strings.Contains(string(rest), "event: end"); (err == nil) != whole || ends != whole {
			t.Errorf("%s: %q, %v; want whole %v", question, rest, err, whole)
		}
	}
}
