package core

import "strings"

// rights are the commands that a server denies its user, as probe.lua found them.
type rights struct {
	essential, waiting []string // commands
	key, channel       bool     // it is the key, or the channel, that is denied
}

// parseRights reads what the probe answered.
func parseRights(reply string) (r rights) {
	for word := range strings.FieldsSeq(strings.TrimPrefix(reply, "OK")) {
		command := strings.TrimRight(word, "~&")
		r.key = r.key || strings.HasSuffix(word, "~")
		r.channel = r.channel || strings.HasSuffix(word, "&")
		if essential, ok := strings.CutPrefix(command, "!"); ok {
			r.essential = append(r.essential, essential)
		} else {
			r.waiting = append(r.waiting, command)
		}
	}
	return r
}
