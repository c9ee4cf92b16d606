package wire

import "strings"

// A Holder is what a lease carries of its holder. It is stored as three texts, each behind its length, and as nothing if all
// three are empty.
type Holder struct{ Note, Name, Hint string }

// Carried packs what a lease carries, for requests. It cuts a name that is too long.
func (c Holder) Carried() string {
	if c == (Holder{}) {
		return ""
	}
	c.Name = strings.ToValidUTF8(c.Name[:min(len(c.Name), MaxName)], "")
	text := make([]byte, 0, 3+len(c.Note)+len(c.Name)+len(c.Hint))
	text = appendText(text, c.Note)
	text = appendText(text, c.Name)
	text = appendText(text, c.Hint)
	return string(text)
}

// ParseCarried takes apart what a lease carries. A text that this package did not write is an empty Holder.
func ParseCarried(text string) (c Holder) {
	in := packed{rest: text}
	c = Holder{in.text(), in.text(), in.text()}
	valid := !in.bad && in.rest == ""
	fits := len(c.Note) <= MaxNote && len(c.Name) <= MaxName && len(c.Hint) <= MaxHint
	if !valid || !fits {
		return Holder{}
	}
	return c
}
