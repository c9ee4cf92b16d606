package testutil

import (
	"bytes"
	"errors"
	"strconv"
)

var errProtocol = errors.New("testutil: not a RESP request (array of bulk strings)")

// parseRequest parses the request at the beginning of b and returns its size in
// bytes. If b does not contain all of it yet, the size is 0.
func parseRequest(b []byte) (args []string, size int, err error) {
	count, pos, err := parseHeader(b, 0, '*')
	if pos == 0 || err != nil {
		return nil, 0, err
	}

	args = make([]string, 0, min(count, 64))
	for range count {
		length, start, err := parseHeader(b, pos, '$')
		if start == 0 || err != nil {
			return nil, 0, err
		}

		end := start + length
		if len(b) < end+2 {
			return nil, 0, nil
		}
		if b[end] != '\r' || b[end+1] != '\n' {
			return nil, 0, errProtocol
		}
		args = append(args, string(b[start:end]))
		pos = end + 2
	}

	return args, pos, nil
}

// parseHeader parses a line like "$12\r\n" at pos and returns its number and
// the position after it. If the line is not complete yet, after is 0.
func parseHeader(b []byte, pos int, kind byte) (number, after int, err error) {
	if pos >= len(b) {
		return 0, 0, nil
	}
	if b[pos] != kind {
		return 0, 0, errProtocol
	}

	length := bytes.Index(b[pos:], []byte("\r\n"))
	if length < 0 {
		return 0, 0, nil
	}

	number, err = strconv.Atoi(string(b[pos+1 : pos+length]))
	if err != nil || number < 0 {
		return 0, 0, errProtocol
	}

	return number, pos + length + 2, nil
}
