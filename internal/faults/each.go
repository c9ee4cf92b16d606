package faults

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AddElements adds the faults of the elements of a list. It expects one error for each element, nil if the element has no
// fault. An error that joins others counts as several. A fault that several elements have is added once, such as "nodes
// 0, 2 and 3: the client is nil".
func (l *List) AddElements(what string, faults []error) {
	elements := map[string][]int{} // by the text of their fault
	var distinct []error
	for i, fault := range faults {
		for _, part := range parts(fault) {
			text := part.Error()
			if elements[text] == nil {
				distinct = append(distinct, part)
			}
			elements[text] = append(elements[text], i)
		}
	}

	// The faults keep the order in which they were found.
	for _, fault := range distinct {
		*l = append(*l, fmt.Errorf("%s: %w", enumerate(what, elements[fault.Error()]), fault))
	}
}

// parts returns the errors that err joins, or err alone.
func parts(err error) []error {
	if err == nil {
		return nil
	}

	// An error that has its own text must keep it, even if it wraps several.
	joined, isJoin := err.(interface{ Unwrap() []error })
	if isJoin && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		return joined.Unwrap()
	}
	return []error{err}
}

// enumerate names elements: "node 2", or "nodes 0, 2 and 3".
func enumerate(what string, indices []int) string {
	var numbers []string
	for _, i := range indices {
		numbers = append(numbers, strconv.Itoa(i))
	}

	last := len(numbers) - 1
	if last == 0 {
		return what + " " + numbers[0]
	}
	return what + "s " + strings.Join(numbers[:last], ", ") + " and " + numbers[last]
}
