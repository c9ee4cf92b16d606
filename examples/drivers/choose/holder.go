package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	holderEnv = "LOCKKIT_CHOOSE_HOLDER" // its assignment, for a process of this program that holds a key
	holderKey = "account"

	takenOver = 5  // what the second holder makes of the value
	tooLate   = 10 // and the first one, who wakes up after it
)

// An assignment is what a holder is to lock, and where it is to write.
type assignment struct {
	Backend backend
	File    string // of the store
}

// A lateReport is what a holder tells when it has woken up.
type lateReport struct {
	Knew  bool   // its context had ended when it wrote
	Write string // what the store said
	Do    string // and what the lock said in the end
}

func isHolder() bool { return os.Getenv(holderEnv) != "" }

// hold is the process that is paused: it locks, reads, and writes when it is told to, without a look at its context.
func hold(ctx context.Context, in io.Reader, out io.Writer) error {
	var a assignment
	if err := json.Unmarshal([]byte(os.Getenv(holderEnv)), &a); err != nil {
		return err
	}
	s, err := openStore(a.File)
	if err != nil {
		return err
	}
	defer s.db.Close()
	w, err := a.Backend.open(ctx)
	if err != nil {
		return err
	}
	var told lateReport
	err = w.Do(ctx, holderKey, func(held context.Context, token uint64) error {
		value, err := s.read(ctx, holderKey)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "holding")
		if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
			return err
		}
		told.Knew = held.Err() != nil
		err = s.write(ctx, holderKey, token, value+tooLate)
		told.Write = text(err)
		return nil
	})
	told.Do = text(err)
	return json.NewEncoder(out).Encode(told)
}

func text(err error) string {
	if err == nil {
		return "written"
	}
	return err.Error()
}

// A pause is what came of a holder that was paused for longer than its lease.
type pause struct {
	of    string
	free  time.Duration // after which somebody else had the key
	knew  bool
	write string
	do    string
	value int // of the store in the end
}

// pauseAll pauses a holder of each, all at the same time.
func pauseAll(ctx context.Context, backends []backend) ([]pause, error) {
	dir, err := os.MkdirTemp("", "choose-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	all, errs := make([]pause, len(backends)), make([]error, len(backends))
	var group sync.WaitGroup
	for i, b := range backends {
		group.Go(func() {
			all[i], errs[i] = pauseHolder(ctx, b, filepath.Join(dir, strconv.Itoa(i)))
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: pausing a holder: %w", b.title, errs[i])
			}
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// pauseHolder has another process take the key, stops that, takes the key over and writes, and lets the other go on.
func pauseHolder(ctx context.Context, b backend, file string) (p pause, err error) {
	s, err := openStore(file)
	if err != nil {
		return p, err
	}
	defer s.db.Close()
	w, err := b.open(ctx)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	h, err := startHolder(ctx, assignment{b, file})
	if err != nil {
		return p, err
	}
	defer h.end()

	if _, err := h.out.ReadString('\n'); err != nil { // it holds the key
		return p, err
	}
	if err := stopProcess(h.cmd.Process); err != nil {
		return p, err
	}
	since := time.Now()
	p.of = b.title
	err = w.Do(ctx, holderKey, func(ctx context.Context, token uint64) error {
		p.free = time.Since(since)
		value, err := s.read(ctx, holderKey)
		if err != nil {
			return err
		}
		return s.write(ctx, holderKey, token, value+takenOver)
	})
	if err != nil {
		return p, err
	}
	if _, err := io.WriteString(h.in, "write\n"); err != nil {
		return p, err
	}
	if err := continueProcess(h.cmd.Process); err != nil {
		return p, err
	}
	var told lateReport
	if err := json.NewDecoder(h.out).Decode(&told); err != nil {
		return p, err
	}
	p.knew, p.write, p.do = told.Knew, told.Write, told.Do
	p.value, err = s.read(ctx, holderKey)
	return p, err
}

// A holder is a process of this program that holds a key.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHolder(ctx context.Context, a assignment) (*holder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	what, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), holderEnv+"="+string(what))
	cmd.Stderr = os.Stderr
	dieWithParent(cmd, syscall.SIGKILL)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &holder{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// end kills the process, also one that is stopped, and waits for it.
func (h *holder) end() {
	_ = h.cmd.Process.Kill() // it may have ended by itself
	_ = h.cmd.Wait()
}
