package wire

import "strings"

// A Holder describes the holder of a lease by three texts, which the lease carries. It is stored as the three texts,
// each preceded by its length, or as an empty string if all three are empty.
type Holder struct{ Note, Name, Hint string }

// Carried packs the texts for a request. It truncates a name that is too long.
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

// ParseCarried unpacks the texts that a lease carries. It returns an empty Holder if this package did not pack them.
func ParseCarried(text string) (c Holder) {
	in := unpacker{rest: text}
	c = Holder{in.text(), in.text(), in.text()}

	valid := !in.invalid && in.rest == ""
	fits := len(c.Note) <= MaxNote && len(c.Name) <= MaxName && len(c.Hint) <= MaxHint
	if !valid || !fits {
		return Holder{}
	}
	return c
}
