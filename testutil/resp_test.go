package testutil

import (
	"errors"
	"slices"
	"testing"
)

func TestParseRequest(t *testing.T) {
	const get = "*2\r\n$3\r\nGET\r\n$4\r\nk\r\nk\r\n"
	for _, tc := range []struct {
		in   string
		args []string
		size int
		err  error
	}{
		{get, []string{"GET", "k\r\nk"}, len(get), nil},
		{get + get, []string{"GET", "k\r\nk"}, len(get), nil},
		{"*0\r\n", nil, 4, nil},
		{"PING\r\n", nil, 0, errProtocol},
		{"*1\r\n:1\r\n", nil, 0, errProtocol},
		{"*1\r\n$-1\r\n", nil, 0, errProtocol},
		{"*1\r\n$1\r\nabc", nil, 0, errProtocol},
	} {
		args, size, err := parseRequest([]byte(tc.in))
		if !slices.Equal(args, tc.args) || size != tc.size || !errors.Is(err, tc.err) {
			t.Errorf("%q: %q, %d, %v", tc.in, args, size, err)
		}
	}
	for i := range len(get) {
		if _, size, err := parseRequest([]byte(get[:i])); size != 0 || err != nil {
			t.Errorf("the first %d bytes: size %d, %v", i, size, err)
		}
	}
}
