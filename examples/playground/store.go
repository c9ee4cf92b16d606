package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// A store is the database that the locks protect: a few numbers. It refuses reads and writes whose fencing token is
// smaller than one it has seen, unless that is turned off. In SQL:
//
//	UPDATE numbers SET seen = $token WHERE key = $key AND seen <= $token
//
// Reads count, too: else a holder that was asleep could write between the read and the write of the next one.
type store struct {
	tell   func(Event)
	server *http.Server
	addr   string
	done   chan struct{}

	mu      sync.Mutex
	fencing bool
	fenced  map[string]*number
	naive   map[string]*number
}

// A number is right if it was not written more often than it has grown.
type number struct {
	value, writes int
	seen          uint64 // the greatest token
}

func (n *number) lost() int { return n.writes - n.value }

// An access is a read or a write, and what the store answers.
type access struct {
	Replica string `json:"replica"`
	Key     string `json:"key"`
	Naive   bool   `json:"naive"` // without a lock, and so without a token
	Token   uint64 `json:"token"`
	Write   bool   `json:"write"`
	Value   int    `json:"value"`
}

func startStore(tell func(Event)) (*store, error) {
	s := &store{tell: tell, fencing: true, fenced: map[string]*number{}, naive: map[string]*number{}, done: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.addr = listener.Addr().String()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(s.done)
		s.server.Serve(listener) // until close
	}()
	return s, nil
}

func (s *store) close() {
	s.server.Close()
	<-s.done
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a access
	if r.Method != http.MethodPost || !isJSON(r) || json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&a) != nil {
		http.Error(w, "not an access of a replica", http.StatusBadRequest)
		return
	}
	if !s.access(&a) {
		http.Error(w, fmt.Sprintf("token %d is stale", a.Token), http.StatusConflict)
		return
	}
	json.NewEncoder(w).Encode(a)
}

// access reports whether it was accepted. It tells of it before it lets the next one in, so that all is told in order.
func (s *store) access(a *access) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, e := s.fenced, Event{At: millis(time.Now()), Kind: isWrite, Replica: a.Replica, Key: a.Key, Token: a.Token}
	if a.Naive {
		all, e.Kind = s.naive, isUpdate
	}
	n := all[a.Key]
	if n == nil {
		n = &number{}
		all[a.Key] = n
	}
	stale := a.Token < n.seen // naive ones have none
	if stale && s.fencing {
		e.Text = "refused"
		s.tell(e)
		return false
	}
	n.seen = max(n.seen, a.Token)
	if !a.Write {
		a.Value = n.value
		if !a.Naive && !stale { // what a stale holder reads does no harm
			e.Text = "read"
			s.tell(e)
		}
		return true
	}
	switch {
	case a.Naive && a.Value <= n.value:
		e.Text = "lost"
	case stale:
		e.Text = "stale"
	case !a.Naive:
		e.Text = "accepted"
	}
	n.value, n.writes = a.Value, n.writes+1
	s.tell(e)
	return true
}

func (s *store) setFencing(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fencing = on
}

// updates returns how many there were, and how many of them were lost.
func (s *store) updates() (with, lostWith, lostWithout int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.fenced {
		with += n.writes
		lostWith += n.lost()
	}
	for _, n := range s.naive {
		lostWithout += n.lost()
	}
	return with, lostWith, lostWithout
}

// settle takes the numbers for right from now on.
func (s *store) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.fenced {
		n.writes = n.value
	}
}

// A remote is the store as a replica sees it.
type remote struct {
	url, replica string
	client       *http.Client
}

func newRemote(addr, replica string) remote {
	return remote{"http://" + addr, replica, &http.Client{Timeout: patience}} // a pause of the process is to break nothing off
}

// access does not take a context: whoever does not look at his lock any more does not let it stop him, either.
func (r remote) access(a access) (value int, err error) {
	a.Replica = r.replica
	body, err := json.Marshal(a)
	if err != nil {
		return 0, err
	}
	res, err := r.client.Post(r.url, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the store answers %s", res.Status)
	}
	err = json.NewDecoder(res.Body).Decode(&a)
	return a.Value, err
}
