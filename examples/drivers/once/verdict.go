package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// enoughKills is from how many kills on a run must have found work that was done by a process before its death.
const enoughKills = 50

// verdict compares the payments in the database with the books. The error names each fault.
func (b books) verdict(payments []payment) error {
	var wrong []error
	accuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }

	booked := map[string][]string{} // receipts, by order
	for _, p := range payments {
		booked[p.order] = append(booked[p.order], p.receipt)
	}

	for _, order := range slices.Sorted(maps.Keys(booked)) {
		isAsked := b.requests[order] || b.tasks[order] || isFee(order)
		switch {
		case len(booked[order]) > 1:
			accuse("%s was booked %d times", order, len(booked[order]))
		case !isAsked:
			accuse("%s was booked, and nobody has asked for it", order)
		}
	}

	for _, asked := range []map[string]bool{b.requests, b.tasks} {
		for _, order := range slices.Sorted(maps.Keys(asked)) {
			if len(booked[order]) == 0 {
				accuse("%s was answered, and is not booked", order)
			}
		}
	}

	for _, order := range slices.Sorted(maps.Keys(b.receipts)) {
		for _, receipt := range b.receipts[order] {
			if !slices.Contains(booked[order], receipt) {
				accuse("%s has a receipt %s, which is not booked", order, receipt)
			}
		}
	}

	fees := 0
	for order := range booked {
		if isFee(order) {
			fees++
		}
	}
	if len(b.requests) == 0 || len(b.tasks) == 0 || fees == 0 {
		accuse("%d requests, %d tasks and %d ticks have paid: there must be some of each", len(b.requests), len(b.tasks), fees)
	}
	if b.kills >= enoughKills && b.repetitions == 0 {
		accuse("no work was found done after %d kills, so they have shown nothing", b.kills)
	}
	return limited(wrong)
}

// limited joins errors, and leaves out those after the tenth.
func limited(wrong []error) error {
	const most = 10
	if len(wrong) > most {
		wrong = append(wrong[:most:most], fmt.Errorf("and %d more", len(wrong)-most))
	}
	return errors.Join(wrong...)
}

// summary returns the counts, for people.
func (b books) summary(payments []payment) string {
	var said []string
	said = append(said, fmt.Sprintf("%d processes killed", b.kills))
	fees := 0
	for _, p := range payments {
		if isFee(p.order) {
			fees++
		}
	}
	said = append(said, fmt.Sprintf("%d requests, %d tasks and %d ticks: %d payments booked", len(b.requests), len(b.tasks), fees, len(payments)))
	said = append(said, fmt.Sprintf("%d tries found their work done", b.repetitions))
	return strings.Join(said, "; ")
}
