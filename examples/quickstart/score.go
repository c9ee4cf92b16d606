package main

import (
	"fmt"
	"strings"
	"sync"
)

// A score counts turns by scene of the plot and contender.
type score struct {
	names []string

	mu     sync.Mutex
	scenes []string
	turns  []map[string]int // by scene
}

// scene begins the next one.
func (s *score) scene(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scenes = append(s.scenes, name)
	s.turns = append(s.turns, map[string]int{})
}

// turn counts one for who, now.
func (s *score) turn(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[len(s.turns)-1][who]++
}

// check returns an error unless every contender had several turns, and turns went on in every scene.
func (s *score) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, who := range s.names {
		if n := s.total(who); n < 2 {
			return fmt.Errorf("%s had %d turns, want 2 or more", who, n)
		}
	}
	for i, scene := range s.scenes {
		if len(s.turns[i]) == 0 {
			return fmt.Errorf("%s: nobody had a turn", scene)
		}
	}
	return nil
}

func (s *score) total(who string) int {
	n := 0
	for _, turns := range s.turns {
		n += turns[who]
	}
	return n
}

// String is a table.
func (s *score) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	row := func(title string, cell func(who string) any) {
		fmt.Fprintf(&b, "%-20s", title)
		for _, who := range s.names {
			fmt.Fprintf(&b, "%7v", cell(who))
		}
		b.WriteByte('\n')
	}
	row("turns", func(who string) any { return who })
	for i, scene := range s.scenes {
		row(scene, func(who string) any { return s.turns[i][who] })
	}
	row("in all", func(who string) any { return s.total(who) })
	return b.String()
}
