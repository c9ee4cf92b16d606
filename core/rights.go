package core

import (
	"cmp"
	"slices"
	"strings"
)

// rights are the rules that a server's ACL lacks for its user: "+command", and "~prefix*" or "&prefix*" where it is the keys
// or the channels of the prefix that are denied.
type rights []string

// parseRights reads what probe.lua answered.
func parseRights(reply, prefix string) (r rights) {
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
func (r rights) String() string {
	order := func(rule string) int { return strings.Index("+~&", rule[:1]) }
	slices.SortFunc(r, func(a, b string) int { return cmp.Or(order(a)-order(b), strings.Compare(a, b)) })
	return strings.Join(slices.Compact(r), " ")
}
