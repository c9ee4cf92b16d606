package main

import (
	"slices"
	"time"
)

// unseen reports whether none that led within the grace of the tick has heard of it. That they led, their runs tell.
func (j *chaosJudge) unseen(tick time.Time) bool {
	led := false
	for _, r := range j.all {
		if r.At.Before(tick) || r.At.After(tick.Add(j.grace)) {
			continue
		}
		led = true
		if !j.away(r.Replica, tick) {
			return false
		}
	}
	return led
}

// away reports whether a replica was dead or stopped when a tick fell due by its clock.
func (j *chaosJudge) away(replica string, tick time.Time) bool {
	i := slices.IndexFunc(chaosMembers, func(m member) bool { return m.name == replica })
	due := tick.Add(-chaosMembers[i].ahead)
	away := true
	for _, e := range j.life {
		if e.Replica == replica && !e.At.After(due) {
			away = e.Kind == isKilled || e.Kind == isStopped
		}
	}
	return away
}
