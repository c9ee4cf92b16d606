// Package jsonfield reads one field of a JSON document, as a part of a key.
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

// ErrAbsent matches the error of Of where there is no such field, or it is null, or the document is empty or null.
var ErrAbsent = errors.New("is missing")

var errAbsent = fmt.Errorf("it %w", ErrAbsent)

// Of returns the field of the object to which path leads. It must be a string, a number or a boolean, and not empty; a
// number is returned as it is written. A string with something that is not Unicode is an error: JSON's decoders have one
// character for all of that. A name that is there twice on the way, also in another case, is an error: of those
// who decode the document some take the one and some the other.
func Of(document []byte, path []string) (string, error) {
	raw := json.RawMessage(document)
	switch string(bytes.TrimSpace(raw)) {
	case "":
		return "", fmt.Errorf("it %w: the document is empty", ErrAbsent)
	case "null":
		return "", fmt.Errorf("it %w: the document is null", ErrAbsent)
	}
	in := "the document"
	for _, name := range path {
		field, err := member(raw, in, name)
		if err != nil {
			return "", err
		}
		raw, in = field, strconv.Quote(name)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // of any size
	var value any
	_ = decoder.Decode(&value) // what is not JSON is none of these either
	switch v := value.(type) {
	case string:
		if strings.Count(v, replacement) > replacements(raw) {
			return "", fmt.Errorf("it has something that is not Unicode, of which different values would count as the same: %.40q", raw)
		}
		if v != "" {
			return v, nil
		}
	case json.Number, bool:
		return string(raw), nil
	}
	return "", fmt.Errorf("it must be a string, a number or a boolean, and not empty, but is %.40s", bytes.ToValidUTF8(raw, []byte(replacement))) // asynq stores no other
}

// replacement is what package json has for bytes that are not UTF-8, and for halves of surrogate pairs.
const replacement = "\ufffd"

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// replacements counts those that a string has itself, as it is written.
func replacements(raw []byte) int {
	n := bytes.Count(raw, []byte(replacement))
	for _, escape := range escapes.FindAll(raw, -1) {
		if strings.EqualFold(string(escape), `\ufffd`) {
			n++
		}
	}
	return n
}

// member returns the value of the one member of an object, called in, that has the name.
func member(object json.RawMessage, in, name string) (value json.RawMessage, err error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("%s is not valid JSON", in)
	}
	members := json.NewDecoder(bytes.NewReader(object))
	if start, _ := members.Token(); start != json.Delim('{') {
		return nil, fmt.Errorf("%s is not a JSON object", in)
	}
	alike := 0
	for members.More() {
		key, _ := members.Token()
		var v json.RawMessage
		_ = members.Decode(&v) // it is valid
		have, _ := key.(string)
		if strings.EqualFold(have, name) {
			alike++
		}
		if have == name {
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
