package nemesis

import (
	"encoding/json"
	"net"
	"sync"
	"time"
)

// A Write is a line of JSON that a worker sends to the referee while it works under a lock. Any lock can be judged if its
// workers send them.
type Write struct {
	By        string
	Key       string
	Semaphore string    // the key of the semaphore, if Key is one of its slots
	Token     uint64    // the fencing token of the lease
	Looked    time.Time // when the worker last looked whether it still holds the key, and found that it does
}

// A Verdict is the answer to a Write.
type Verdict struct {
	Accepted bool
	Greatest uint64 // the greatest token that was accepted for the key
}

// Referee is a store that checks fencing tokens. It knows nothing of locks: it sees each worker's key and times, by its
// own clock, and refuses tokens that are smaller than an accepted one.
type Referee struct {
	listener net.Listener
	lax      bool // accepts all
	say      func(event)
	work     sync.WaitGroup

	mu       sync.Mutex
	greatest map[string]uint64 // by key
	conns    map[net.Conn]bool
}

func startReferee(lax bool, say func(event)) (*Referee, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	r := &Referee{listener: l, lax: lax, say: say, greatest: map[string]uint64{}, conns: map[net.Conn]bool{}}
	r.work.Go(r.accept)
	return r, nil
}

// Addr is where workers connect.
func (r *Referee) Addr() string { return r.listener.Addr().String() }

// Close returns when the last write has been judged.
func (r *Referee) Close() {
	r.listener.Close()
	r.mu.Lock()

	for c := range r.conns {
		c.Close()
	}

	r.mu.Unlock()
	r.work.Wait()
}

func (r *Referee) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns[c] = true
		r.mu.Unlock()
		r.work.Go(func() { r.serve(c) })
	}
}

// serve answers the writes of a worker until it has gone.
func (r *Referee) serve(c net.Conn) {
	defer func() {
		c.Close()
		r.mu.Lock()
		delete(r.conns, c)
		r.mu.Unlock()
	}()
	in, out := json.NewDecoder(c), json.NewEncoder(c)

	for {
		var w Write
		if in.Decode(&w) != nil || out.Encode(r.judge(w)) != nil {
			return
		}
	}
}

// judge decides, and writes into the book, one write at a time.
func (r *Referee) judge(w Write) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{Accepted: r.lax || w.Token >= r.greatest[w.Key]}
	if v.Accepted {
		r.greatest[w.Key] = max(r.greatest[w.Key], w.Token)
	}

	v.Greatest = r.greatest[w.Key]

	e := event{At: time.Now(), Kind: isWrote, By: w.By, Key: w.Key, Semaphore: w.Semaphore, Token: w.Token, Asked: w.Looked}
	if !v.Accepted {
		e.Err = stale
	}

	r.say(e)
	return v
}

// A worker shows its writes to a referee. It is safe for concurrent use.
type worker struct {
	addr string
	mu   sync.Mutex
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func (w *worker) show(of Write) (v Verdict, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		if w.conn, err = net.Dial("tcp", w.addr); err != nil {
			return v, err
		}
		w.in, w.out = json.NewDecoder(w.conn), json.NewEncoder(w.conn)
	}

	if err = w.out.Encode(of); err == nil {
		err = w.in.Decode(&v)
	}

	if err != nil {
		w.conn.Close()
		w.conn = nil
	}

	return v, err
}
