package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Key builds a key from parts, so that different parts make different keys: "5:order/2:42" from "order" and "42". A
// key has 1 to 512 bytes; a longer one is hashed. The adapters build their keys with Key, and use keys built with it
// unchanged, so a route, a task, a job and a call of Do with the same key exclude each other and share fencing
// tokens.
//
// Key("order", "42") and the text "order:42" are different keys, which do not exclude each other. Make each key that
// names one of many things with Key, in all processes, and use a plain text only for a key that stands for itself, such
// as "payments-api".
func Key(parts ...string) string {
	key := make([]byte, 0, 128)
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
	return "sha256:" + hex.EncodeToString(sum[:]) // keys that are not hashed begin with a digit
}

// keyHash returns the hash that stands for a key in log lines, because keys may be secrets of clients.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
