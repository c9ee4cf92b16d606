package jsonfield

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for document, want := range map[string]string{
		`{"a":{"b":"x"}}`:             "x",
		`{"a":{"b":1e3}, "b":2}`:      "1e3",
		`{"a":{"b":false}}`:           "false",
		`{"a":{"b":""}}`:              "error: it must be",
		`{"a":{"b":[]}}`:              "error: it must be",
		`{"a":{"c":1}}`:               "error: it is missing",
		`{"a":1}`:                     `error: "a" is not a JSON object`,
		`nonsense`:                    "error: the document is not valid JSON",
		``:                            "error: it is missing: the document is empty",
		" \n":                         "error: it is missing: the document is empty",
		`null`:                        "error: it is missing: the document is null",
		" null\n":                     "error: it is missing: the document is null",
		`"null"`:                      "error: the document is not a JSON object",
		`{"a":{"b":1,"b":1}}`:         `error: "b" is there`,
		`{"a":{"b":1},"A":{"b":1}}`:   `error: "a" is there`,
		"{\"a\":{\"b\":[\"\xff\"]}}":  "error: it must be a string, a number or a boolean, and not empty, but is [\"\ufffd\"]",
		`{"a":null}`:                  "error: it is missing",
		`{"a":{"b":null}}`:            "error: it is missing",
		`{"a":{"b":1,"b":null}}`:      `error: "b" is there`,
		`{"a":{"B":1}}`:               "error: it is missing",
		`{"a":{"B":1,"b":1}}`:         `error: "b" is there`,
		`{"a":{"b":1e400}}`:           "1e400",
		`{"a":{"b":"\ud83d\ude00"}}`:  "😀",
		`{"a":{"b":"\ufffd"}}`:        "\ufffd",
		"{\"a\":{\"b\":\"\ufffd\"}}":  "\ufffd",
		`{"a":{"b":"\ud800"}}`:        "error: it has something that is not Unicode",
		`{"a":{"b":"\ud800\ufffd"}}`:  "error: it has something that is not Unicode",
		`{"a":{"b":"\\ufffd\ud800"}}`: "error: it has something that is not Unicode",
		`{"a":{"b":"\ude00\ud83d"}}`:  "error: it has something that is not Unicode",
		"{\"a\":{\"b\":\"x\xff\"}}":   "error: it has something that is not Unicode",
	} {
		got, err := Of([]byte(document), []string{"a", "b"})
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", document, got, want)
		}
	}
}

// A field that is found is not empty, whatever the document is.
func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"x"}}`))
	f.Add([]byte(`{"a":{"b":1,"B":2}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		if v, err := Of(document, []string{"a", "b"}); err == nil && v == "" {
			t.Errorf("%q has an empty field", document)
		}
	})
}
