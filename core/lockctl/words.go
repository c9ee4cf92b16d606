package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
)

// holderName returns the note and the name of a holder, or else its hint.
func holderName(h *core.Holder) string {
	switch {
	case h.Note != "" && h.Name != "":
		return quoteIfNeeded(h.Note) + " (" + quoteIfNeeded(h.Name) + ")"
	case h.Note != "" || h.Name != "":
		return quoteIfNeeded(h.Note + h.Name)
	case h.Hint != "":
		return quoteIfNeeded(h.Hint)
	}
	return "-"
}

func tokenText(h *core.Holder) string {
	if h.Token == 0 {
		return "unknown"
	}
	return strconv.FormatUint(h.Token, 10)
}

// printable replaces the characters of a server's text that could disturb a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// oneLine returns the text of an error on one line, without the prefixes that lockctl need not repeat.
func oneLine(err error) string {
	words := strings.Fields(err.Error())
	text := printable(strings.Join(words, " "))

	for _, prefix := range []string{"lockkit: ", core.ErrUnavailable.Error() + ": "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// withoutNodeName returns the text of a node's error, on one line, without the node's name.
func withoutNodeName(err error, name string) string {
	return strings.TrimPrefix(oneLine(err), name+": ")
}

// nodeName returns the name of a node as in errors of core.
func nodeName(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}

// nodeList returns the nodes as part of a sentence, such as "node 1" or "nodes 0 and 2".
func nodeList(nodes []int) string {
	var names []string
	for _, n := range nodes {
		names = append(names, strconv.Itoa(n))
	}

	switch len(names) {
	case 0:
		return "no node"
	case 1:
		return "node " + names[0]
	}

	last := len(names) - 1
	return "nodes " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// holderJSON is the JSON form of a holder.
type holderJSON struct {
	Token   uint64     `json:"token,omitempty"` // below 2^53; missing while the nodes disagree on it
	Since   *time.Time `json:"since,omitempty"`
	LeftMS  int64      `json:"left_ms"`
	Note    string     `json:"note,omitempty"` // host and process of the holder, or the text of core.Note
	Name    string     `json:"name,omitempty"` // the text of core.Name
	Hint    string     `json:"hint,omitempty"`
	Attempt string     `json:"attempt"`
}

func newHolderJSON(h *core.Holder) *holderJSON {
	if h == nil {
		return nil
	}

	j := &holderJSON{
		Token:   h.Token,
		LeftMS:  h.Remaining.Milliseconds(),
		Note:    h.Note,
		Name:    h.Name,
		Hint:    h.Hint,
		Attempt: h.Attempt,
	}

	if !h.Since.IsZero() {
		since := h.Since.UTC()
		j.Since = &since
	}
	return j
}
