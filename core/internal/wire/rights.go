package wire

import (
	"cmp"
	"slices"
	"strings"
)

// Rights are the rules that a server's ACL lacks for its user: "+command", and "~prefix*" or "&prefix*" where it is the keys
// or the channels of the prefix that are denied.
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

// String is the rules, each once.
func (r Rights) String() string {
	order := func(rule string) int { return strings.Index("+~&", rule[:1]) }
	slices.SortFunc(r, func(a, b string) int { return cmp.Or(order(a)-order(b), strings.Compare(a, b)) })
	return strings.Join(slices.Compact(r), " ")
}
