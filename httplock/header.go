package httplock

import (
	"net/http"
	"strings"
)

// net/http sends the names of headers as handlers spell them, and clients read them in any spelling.

// headerValue returns the first value of a header with the name, in any spelling, or "".
func headerValue(h http.Header, name string) string {
	for spelled, values := range h {
		if strings.EqualFold(spelled, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// hasValue reports whether a header with the name, in any spelling, has a value that is not empty.
func hasValue(h http.Header, name string) bool {
	for spelled, values := range h {
		if strings.EqualFold(spelled, name) && strings.Join(values, "") != "" {
			return true
		}
	}
	return false
}

// hasHeader reports whether there is a header with the name, in any spelling, even without a value.
func hasHeader(h http.Header, name string) bool {
	for spelled := range h {
		if strings.EqualFold(spelled, name) {
			return true
		}
	}
	return false
}

// deleteHeader deletes the headers with the name, in any spelling.
func deleteHeader(h http.Header, name string) {
	for spelled := range h {
		if strings.EqualFold(spelled, name) {
			delete(h, spelled)
		}
	}
}
