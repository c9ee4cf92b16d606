package faults

import "strings"

// maxQuoted is how many bytes of what a server says a message may have.
const maxQuoted = 200

// Clip is a text of a server's as a message quotes it, in at most 200 bytes: of a long one, the beginning and the end, in which
// Redis before version 7 gives the reason.
func Clip(text string) string {
	const gap, ending = " … ", 60
	if len(text) <= maxQuoted {
		return text
	}
	start := strings.ToValidUTF8(text[:maxQuoted-ending-len(gap)], "")
	return start + gap + strings.ToValidUTF8(text[len(text)-ending:], "")
}
