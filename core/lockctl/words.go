package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
)

// identity is who holds a key, in a word or two.
func identity(h *core.Holder) string {
	switch {
	case h.Note != "" && h.Name != "":
		return plain(h.Note) + " (" + plain(h.Name) + ")"
	case h.Note != "" || h.Name != "":
		return plain(h.Note + h.Name)
	case h.Hint != "":
		return plain(h.Hint)
	}
	return "-"
}

func tokenText(h *core.Holder) string {
	if h.Token == 0 {
		return "unknown"
	}
	return strconv.FormatUint(h.Token, 10)
}

// tidy is a text of a server's without what could disturb a terminal.
func tidy(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// oneLine is an error for a line, without the names of package and operation.
func oneLine(err error) string {
	text := tidy(strings.Join(strings.Fields(err.Error()), " "))
	for _, prefix := range []string{"lockkit: ", core.ErrUnavailable.Error() + ": "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// own is an error of a node, without the node's name.
func own(err error, name string) string { return strings.TrimPrefix(oneLine(err), name+": ") }

// nodeName is how core names a node in errors.
func nodeName(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}

// nodeList names nodes in a sentence: "node 1", "nodes 0 and 2".
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

// holderJSON is a holder in JSON.
type holderJSON struct {
	Token   uint64     `json:"token,omitempty"` // below 2^53; missing while the nodes do not agree on it
	Since   *time.Time `json:"since,omitempty"`
	LeftMS  int64      `json:"left_ms"`
	Note    string     `json:"note,omitempty"` // who it is: host and process, or what core.Note says
	Name    string     `json:"name,omitempty"` // what for: core.Name
	Hint    string     `json:"hint,omitempty"`
	Attempt string     `json:"attempt"`
}

func newHolderJSON(h *core.Holder) *holderJSON {
	if h == nil {
		return nil
	}
	j := &holderJSON{Token: h.Token, LeftMS: h.Left.Milliseconds(), Note: h.Note, Name: h.Name, Hint: h.Hint, Attempt: h.Attempt}
	if !h.Since.IsZero() {
		since := h.Since.UTC()
		j.Since = &since
	}
	return j
}
