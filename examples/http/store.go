package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
)

// A store is the database: it knows how to read and to write, and nothing of locks.
type store struct {
	server *httptest.Server

	mu     sync.Mutex
	values map[string]int
}

func startStore() *store {
	s := &store{values: map[string]int{}}
	s.server = httptest.NewServer(s)
	return s
}

func (s *store) url() string { return s.server.URL }
func (s *store) close()      { s.server.Close() }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		body, _ := io.ReadAll(r.Body)
		s.values[r.URL.Path], _ = strconv.Atoi(string(body))
	}
	fmt.Fprint(w, s.values[r.URL.Path])
}

// total is the sum of all values; it empties the store.
func (s *store) total() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		sum += v
	}
	clear(s.values)
	return sum
}

// A remote is the store as replicas see it.
type remote string

func (s remote) read(id string) (int, error) { return s.do(http.MethodGet, id, "") }

func (s remote) write(id string, value int) error {
	_, err := s.do(http.MethodPut, id, strconv.Itoa(value))
	return err
}

func (s remote) do(method, id, body string) (int, error) {
	req, err := http.NewRequest(method, string(s)+"/"+id, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	value, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(value))
}
