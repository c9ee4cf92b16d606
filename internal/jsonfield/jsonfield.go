// Package jsonfield reads one field of a JSON document, for use in a key.
package jsonfield

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrAbsent matches the error of Of if there is no such field, or it is null, or the document is empty or null.
var ErrAbsent = errors.New("is missing")

var errAbsent = fmt.Errorf("it %w", ErrAbsent)

// Of returns the field of the document to which path leads. The field must be a string, a number or a boolean, and not
// empty. A number is returned as it is written. A string with anything that is not Unicode is an error, because JSON
// decoders replace all of that by the same character. A name on the path that occurs twice, even with different case,
// is an error, because decoders differ in which of the two they use.
func Of(document []byte, path []string) (string, error) {
	raw := json.RawMessage(document)
	switch string(bytes.TrimSpace(raw)) {
	case "":
		return "", fmt.Errorf("it %w: the document is empty", ErrAbsent)
	case "null":
		return "", fmt.Errorf("it %w: the document is null", ErrAbsent)
	}

	parent := "the document"
	for _, name := range path {
		field, err := member(raw, parent, name)
		if err != nil {
			return "", err
		}
		raw = field
		parent = strconv.Quote(name)
	}

	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float64 would change large numbers
	var value any
	_ = decoder.Decode(&value) // after an error, value is nil, and refused below
	switch v := value.(type) {
	case string:
		if strings.Count(v, replacement) > countReplacements(raw) {
			return "", fmt.Errorf("it has something that is not Unicode, "+
				"of which different values would count as the same: %.40q", raw)
		}
		if v != "" {
			return v, nil
		}
	case json.Number, bool:
		return string(raw), nil
	}

	text := bytes.ToValidUTF8(raw, []byte(replacement)) // asynq stores no other
	return "", fmt.Errorf("it must be a string, a number or a boolean, and not empty, but is %.40s", text)
}

// replacement is the character by which package json replaces bytes that are not UTF-8, and halves of surrogate pairs.
const replacement = "\ufffd"

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// countReplacements returns the number of replacement characters in the JSON text of a string, escaped or not.
func countReplacements(raw []byte) int {
	n := bytes.Count(raw, []byte(replacement))
	for _, escape := range escapes.FindAll(raw, -1) {
		if strings.EqualFold(string(escape), `\ufffd`) {
			n++
		}
	}
	return n
}

// member returns the value of the member with the name. parent is the name of the object in errors.
func member(object json.RawMessage, parent, name string) (value json.RawMessage, err error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("%s is not valid JSON", parent)
	}

	members := json.NewDecoder(bytes.NewReader(object))
	if start, _ := members.Token(); start != json.Delim('{') {
		return nil, fmt.Errorf("%s is not a JSON object", parent)
	}

	// The errors of the decoder can be ignored, because the object is valid.
	alike := 0 // members with the name in any case
	for members.More() {
		token, _ := members.Token()
		var v json.RawMessage
		_ = members.Decode(&v)

		key, _ := token.(string)
		if strings.EqualFold(key, name) {
			alike++
		}
		if key == name {
			value = v
		}
	}

	switch {
	case value == nil:
		return nil, errAbsent
	case alike > 1:
		return nil, fmt.Errorf("%q is there more than once, or in more than one way of writing it", name)
	case string(value) == "null":
		return nil, errAbsent
	}
	return value, nil
}
