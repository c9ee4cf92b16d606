package slot

import (
	"strconv"
	"strings"

	"github.com/lockkit/lockkit/core/internal/wire"
)

const (
	// Max is the largest number of slots of a key.
	Max = 1024

	// MaxKey is the length of the longest key, in bytes. The names of all its slots suit core. It does not depend on the
	// number of slots, so a key that suits a small semaphore suits a large one.
	MaxKey = wire.MaxKey - len("4:slot/") - len("494:") - len("/") - len("4:1023")
)

// Name returns the key of a slot's lock. Slot 0 is the key itself: a semaphore of one is the plain lock, and a holder of
// the plain lock counts as one holder of the semaphore. The names do not depend on the number of slots, so holders that
// know different numbers share the slots that both know.
//
// The name of any other slot i is core.Key("slot", key, "i").
func Name(key string, i int) string {
	if i == 0 {
		return key
	}

	name := make([]byte, 0, len(key)+32)
	name = append(name, "4:slot/"...)
	name = appendPart(name, key)
	name = append(name, '/')
	name = appendPart(name, strconv.Itoa(i))
	return string(name)
}

// appendPart appends a part of a key as core.Key does.
func appendPart(name []byte, part string) []byte {
	name = strconv.AppendInt(name, int64(len(part)), 10)
	name = append(name, ':')
	return append(name, part...)
}

// Parse returns the key and the number of a slot, given its name. It returns false for slot 0, because its name is the key.
func Parse(name string) (key string, i int, ok bool) {
	rest, isSlot := strings.CutPrefix(name, "4:slot/")
	if !isSlot {
		return "", 0, false
	}

	// The key may contain anything, so its length precedes it.
	length, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	isTooLong := n < 1 || n > len(rest)
	if err != nil || isTooLong {
		return "", 0, false
	}
	key = rest[:n]

	_, number, _ := strings.Cut(rest[n:], ":")
	i, err = strconv.Atoi(number)
	if err != nil {
		return "", 0, false
	}

	// A name that is written differently is the key of another lock.
	isName := 0 < i && i < Max && Name(key, i) == name
	if !isName {
		return "", 0, false
	}
	return key, i, true
}
