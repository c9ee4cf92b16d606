package wire

import (
	"cmp"
	"slices"
	"strings"
)

// Rights are the ACL rules that the user of a server lacks: "+command", and "~prefix*" or "&prefix*" if the keys or
// the channels of the prefix are denied.
type Rights []string

// ParseRights reads the reply to a Probe.
func ParseRights(reply, prefix string) (r Rights) {
	for word := range strings.FieldsSeq(strings.TrimPrefix(reply, "OK")) {
		switch of := word[len(word)-1:]; of {
		case "~", "&":
			r = append(r, of+prefix+"*")
		default:
			r = append(r, "+"+word)
		}
	}
	return r
}

// String returns the rules, each once.
func (r Rights) String() string {
	// Commands come first, then keys, then channels.
	order := func(rule string) int {
		return strings.Index("+~&", rule[:1])
	}
	slices.SortFunc(r, func(a, b string) int {
		return cmp.Or(order(a)-order(b), strings.Compare(a, b))
	})

	return strings.Join(slices.Compact(r), " ")
}
