package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// joinedKey matches a call that locks or looks at a key that is a text of several parts, such as "order:42", or the
// beginning of one, such as "order:"+id. A list of keys may have one of them at any place.
var joinedKey = regexp.MustCompile(`\.(?:Try)?(?:Do|Once|OnceResult|Acquire|DoAll|AcquireAll|Inspect|InspectAll)\([\w.()]+, ` +
	`(?:\[\]string\{)?(?:"[^"]*", )*(?:"[^":/]*[:/][^"]*"|fmt\.Sprint)`)

// Documents, package documents and examples make a key of several parts with core.Key, and never by joining texts: the
// two are different keys, so a reader who copied both would have locks that do not exclude each other.
func TestOneStyleOfKeys(t *testing.T) {
	t.Parallel()
	withKey := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !isShown(path) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		withKey += strings.Count(string(content), "core.Key(")
		for _, call := range joinedKey.FindAllString(string(content), -1) {
			t.Errorf("%s: %s…: make this key with core.Key", path, call)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if withKey < 50 {
		t.Errorf("found only %d calls of core.Key", withKey)
	}
}

// isShown reports whether readers copy from a file: documents, code that is not of tests, and examples.
func isShown(path string) bool {
	name := filepath.Base(path)
	switch filepath.Ext(path) {
	case ".md":
		return true
	case ".go":
		return !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "example")
	}
	return false
}

// TestOneStyleOfKeys notices a joined key wherever it stands, and no other text.
func TestJoinedKey(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]bool{
		`locker.Do(ctx, "invoice:42", work)`:                           true,
		`locker.TryDo(ctx, "invoice:"+id, work)`:                       true,
		`locker.Acquire(c.Request.Context(), "order/7")`:               true,
		`locker.DoAll(ctx, []string{"a", "account:2"}, work)`:          true,
		`locker.Once(ctx, fmt.Sprintf("report-%s", day), work)`:        true,
		`locker.Do(ctx, core.Key("invoice", "42"), work)`:              false,
		`limit.Do(ctx, "payments-api", work)`:                          false,
		`locker.DoAll(ctx, []string{from, to}, work)`:                  false,
		`locks.Obtain(ctx, "invoice:42", 10*time.Second)`:              false,
		`locker.Do(ctx, "report", func(ctx context.Context) error { }`: false,
	} {
		if joinedKey.MatchString(call) != want {
			t.Errorf("%s: %v", call, !want)
		}
	}
}
