package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkit/lockkit/testutil"
)

// How a difference is shown: the shortest list of events that leads to it.

// shortest drops events from the trial for as long as what is left still fails, and describes it.
func shortest(failed *trial, onNode func(func(*subject))) string {
	events := failed.events
	var what string
	fails := func(events []event) bool {
		text := ""
		onNode(func(s *subject) { text = newTrial(s, failed.seed, map[string]int{}).replay(events) })
		if text != "" {
			what = text
		}
		return text != ""
	}
	if !fails(events) {
		return fmt.Sprintf("seed %d: %s\nIt does not happen again when the same is repeated.", failed.seed, failed.failure)
	}

	for size := max(1, len(events)/2); size > 0; size /= 2 {
		for i := len(events) - size; i >= 0; i-- {
			if i+size <= len(events) {
				without := slices.Concat(events[:i], events[i+size:])
				if fails(without) {
					events = without
				}
			}
		}
	}
	for i, e := range events {
		for j := len(e.command.requests) - 1; j >= 0 && len(events[i].command.requests) > 1; j-- {
			fewer := slices.Clone(events)
			fewer[i].command.requests = slices.Delete(slices.Clone(events[i].command.requests), j, j+1)
			if fails(fewer) {
				events = fewer
			}
		}
	}

	fails(events)
	var lines []string
	last := int64(0)
	for _, e := range events {
		lines = append(lines, e.describe(last))
		last = e.µs
	}
	return fmt.Sprintf("seed %d, after %d calls; the shortest part that shows it:\n%s\n%s\nRepeat it: go test -vet=off ./core/internal/wire -run '^TestScriptsDoAsTheModel$/^%s$' -count=1 -model.calls=%d -model.seed=%d",
		failed.seed, len(failed.events), strings.Join(lines, "\n"), what, failed.subject.kind, (failed.seed+1)*callsOfTrial, failed.seed)
}

// describe shows an event in a line, and a line for each request. last is when the event before it happened.
func (e event) describe(last int64) string {
	text := fmt.Sprintf("at %d µs: ", e.µs)
	if last > 0 {
		text = fmt.Sprintf("%+d µs: ", e.µs-last)
	}
	if e.what != "call" {
		return text + e.what
	}

	c := e.command
	text += fmt.Sprintf("command maxTTL=%d", c.maxTTL)
	if c.guarded {
		text += " memory=" + c.assumed
	}
	if c.window > 0 {
		text += fmt.Sprintf(" window=%d wall=%+d µs", c.window, c.wall-e.µs)
	}
	if c.lag > 0 {
		text += fmt.Sprint(" lag=", c.lag)
	}
	if e.replica {
		text += " on a replica"
	}
	if e.hidden {
		text += " without a history"
	}
	for _, q := range c.requests {
		text += "\n    " + q.describe()
	}
	return text
}

// describe shows a request in a line.
func (q requestOfTrial) describe() string {
	who := strings.TrimSpace(q.attempt + " " + q.op.name() + " " + q.key)
	switch q.op {
	case OpAcquire:
		return fmt.Sprintf("%s lease=%d%s", who, q.lease, showFields(q.acquire))
	case OpRenew:
		return fmt.Sprintf("%s lease=%d%s", who, q.lease, showFields(q.renew))
	case OpRelease:
		return who + showFields(q.release)
	case OpComplete:
		return who + showFields(q.complete)
	case OpForget:
		return fmt.Sprintf("%s token=%d", who, q.token)
	case OpProvision:
		return fmt.Sprintf("%s claim=%s found=%s", who, q.claim, q.found)
	case OpLower:
		return fmt.Sprintf("%s %s to=%d mark=%q", who, q.step, q.to, q.mark)
	}
	return who
}

// name returns the operation in a word.
func (o Op) name() string {
	return [...]string{"acquire", "renew", "release", "complete", "touch", "provision", "lower", "revoke", "forget", "probe"}[o]
}

// showReply shows a reply.
func showReply(v Reply) string {
	verdict := v.Verdict.String()
	v.Verdict = 0
	return verdict + showFields(v)
}

// showFields shows the fields of a struct that are not zero, each behind a space.
func showFields(v any) (text string) {
	of := reflect.ValueOf(v)
	for i := range of.NumField() {
		if of.Field(i).IsZero() {
			continue
		}

		var shown string
		switch value := of.Field(i).Interface().(type) {
		case []byte:
			shown = strconv.Quote(string(value))
		case string:
			shown = strconv.Quote(value)
		case *Record:
			shown = "{" + strings.TrimSpace(showFields(*value)) + "}"
		case Channel:
			shown = value.Name
		case Millis:
			shown = fmt.Sprint(value.ms)
		case Waiter:
			shown = fmt.Sprintf("%s@%d", value.Name, value.Ticket.µs)
		case Stamp:
			shown = fmt.Sprint(value.µs)
		default:
			shown = fmt.Sprint(value)
		}
		text += " " + of.Type().Field(i).Name + "=" + shown
	}
	return text
}

// showStored shows a stored value.
func showStored(name, value string) string {
	if !strings.HasPrefix(name, "p{0}r:") || value == "" {
		return strconv.Quote(value)
	}

	r, err := testutil.ParseResource(value)
	if err != nil {
		return fmt.Sprintf("%q: %v", value, err)
	}
	record := ""
	if r.Record != nil {
		record = fmt.Sprintf(" Record={%s}", strings.TrimSpace(showFields(*r.Record)))
		r.Record = nil
	}
	return strings.TrimSpace(showFields(r) + record)
}
