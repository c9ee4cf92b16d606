package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Key makes a key of parts, so that different parts make different keys, whatever they contain: "5:order/2:42" of "order"
// and "42". What would be longer than a key may be is hashed, which no other key made of parts can be taken for. The
// adapters make their keys by it, and take keys that were made by it as they are, so that a route, a task, a job and a call
// of Do that work on the same thing exclude one another and share its fencing tokens.
func Key(parts ...string) string {
	var room [128]byte
	key := room[:0]
	for i, part := range parts {
		if i > 0 {
			key = append(key, '/')
		}
		key = strconv.AppendInt(key, int64(len(part)), 10)
		key = append(key, ':')
		key = append(key, part...)
	}
	if len(key) <= wire.MaxKey {
		return string(key)
	}
	sum := sha256.Sum256(key)
	return "sha256:" + hex.EncodeToString(sum[:]) // the others begin with a digit
}

// keyHash is what stands for a key in log lines: the keys themselves may be secrets of clients.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
