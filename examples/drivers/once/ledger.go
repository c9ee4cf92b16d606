package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A ledger has the payments that clients have asked for, and the receipts that clients and logs have got. It is safe for
// concurrent use.
type ledger struct {
	mu      sync.Mutex
	books   books
	answers chan struct{} // has an element if there was an answer since it was last read
}

// books are the contents of a ledger.
type books struct {
	requests    map[string]bool     // orders with an answer to the request for their payment
	tasks       map[string]bool     // orders with an accepted task; all tasks are completed when the books are judged
	receipts    map[string][]string // by order, without duplicates
	repetitions int                 // works that were found done
	kills       int                 // processes that were killed
}

func newLedger() *ledger {
	return &ledger{
		books:   books{requests: map[string]bool{}, tasks: map[string]bool{}, receipts: map[string][]string{}},
		answers: make(chan struct{}, 1),
	}
}

// paid enters an answer to a request for a payment.
func (l *ledger) paid(order, receipt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.books.requests[order] = true
	l.books.addReceipt(order, receipt)
	l.answered()
}

// accepted enters an answer to a request for a task that pays.
func (l *ledger) accepted(order string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.books.tasks[order] = true
	l.answered()
}

func (l *ledger) killed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.books.kills++
}

var paidLine = regexp.MustCompile(` INFO (paid|paid before) order=(\S+) receipt=(\S+)\n`)

// log enters a line that a process has printed.
func (l *ledger) log(line string) {
	said := paidLine.FindStringSubmatch(line)
	if said == nil {
		return
	}
	what, order, receipt := said[1], said[2], said[3]

	l.mu.Lock()
	defer l.mu.Unlock()
	l.books.addReceipt(order, receipt)
	if what == "paid before" {
		l.books.repetitions++
	}
}

// answered wakes the caller that waits for an answer.
func (l *ledger) answered() {
	select {
	case l.answers <- struct{}{}:
	default:
	}
}

func (b *books) addReceipt(order, receipt string) {
	if !slices.Contains(b.receipts[order], receipt) {
		b.receipts[order] = append(b.receipts[order], receipt)
	}
}

// copy returns the contents of the ledger.
func (l *ledger) copy() books {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books
	b.requests, b.tasks, b.receipts = maps.Clone(b.requests), maps.Clone(b.tasks), maps.Clone(b.receipts)
	return b
}

// isFee reports whether a tick has made the order.
func isFee(order string) bool { return strings.HasPrefix(order, "fee-") }
