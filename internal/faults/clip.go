package faults

import "strings"

// maxQuoted is the maximum length of a quoted text in bytes.
const maxQuoted = 200

// Clip returns the text of a server for a message, shortened to at most 200 bytes. Of a longer text it keeps the
// beginning and the end, because Redis before version 7 gives the reason at the end.
func Clip(text string) string {
	const gap, ending = " … ", 60
	if len(text) <= maxQuoted {
		return text
	}

	start := strings.ToValidUTF8(text[:maxQuoted-ending-len(gap)], "")
	return start + gap + strings.ToValidUTF8(text[len(text)-ending:], "")
}
