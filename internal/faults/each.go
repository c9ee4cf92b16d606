package faults

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Each notes the faults of the elements of a list, of which faults has one for each element, nil for none; an error that joins
// others counts as those. A fault that several elements have is noted once, such as "nodes 0, 2 and 3: the client is nil".
func (l *List) Each(what string, faults []error) {
	having := map[string][]int{}
	var order []error
	for i, fault := range faults {
		for _, one := range parts(fault) {
			if having[one.Error()] == nil {
				order = append(order, one)
			}
			having[one.Error()] = append(having[one.Error()], i)
		}
	}

	for _, fault := range order {
		*l = append(*l, fmt.Errorf("%s: %w", enumerate(what, having[fault.Error()]), fault))
	}
}

// parts returns the errors that err joins, or err alone.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	joined, isJoin := err.(interface{ Unwrap() []error }) //nolint:errorlint // this error, and none within
	if isJoin && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		return joined.Unwrap()
	}
	return []error{err}
}

// enumerate names elements: "node 2", or "nodes 0, 2 and 3".
func enumerate(what string, which []int) string {
	var numbers []string
	for _, i := range which {
		numbers = append(numbers, strconv.Itoa(i))
	}
	last := len(numbers) - 1
	if last == 0 {
		return what + " " + numbers[0]
	}
	return what + "s " + strings.Join(numbers[:last], ", ") + " and " + numbers[last]
}
