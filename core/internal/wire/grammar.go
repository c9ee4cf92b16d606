package wire

import "maps"

// A grammar lists the replies of a script. It maps the first word of a reply to the verdict and to the fields that
// follow, as the head of the .lua file lists them.
type grammar map[string]struct {
	verdict Verdict
	follows string
}

// The first words of replies to an attempt that its release or its completion did not end on the node.
const (
	revokedWord = "REVOKED"
	refusedWord = "REFUSED"
)

// grammars lists the replies to requests, by operation.
var grammars = [...]grammar{
	OpAcquire: withChecks(grammar{
		"OK":          {Granted, "now token expiry memory [record]"},
		"DONE":        {Done, "now record"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
		"HELD":        {Held, "now rest owner place [carried]"},
		"RESERVED":    {Reserved, "now rest place"},
		"TOMBSTONE":   {Gone, "now"},
		"LOST":        {Gone, "now"},
	}),
	OpRenew: withChecks(grammar{
		"OK":          {Granted, "now expiry memory"},
		"HEALED":      {Healed, "now expiry memory"},
		"PASSED":      {Passed, "now expiry memory"},
		"WAIT":        {Unconfirmed, "now"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
		"LOST":        {Gone, "now"},
		"TOMBSTONE":   {Gone, "now"},
		revokedWord:   {Gone, "now"},
	}),
	OpComplete: withChecks(grammar{
		"OK":        {Granted, "now"},
		"DONE":      {Done, "now ballot"},
		"LOST":      {Gone, "now"},
		"FORGOT":    {Forgotten, "now"},
		"WAIT":      {Unconfirmed, "now"},
		revokedWord: {Gone, "now"},
	}),
	OpTouch: withChecks(grammar{
		"OK":          {Granted, "now memory"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
	}),
	OpProvision: withChecks(grammar{
		"OK":          {Granted, "memory"},
		"UNUSED":      {Granted, "memory claim"},
		"NEW":         {Quarantined, "claim"},
		"QUARANTINED": {Quarantined, "now rest [record]"},
	}),
	OpLower: withChecks(grammar{
		"MARKED":      {Granted, "now claim"},
		"OK":          {Granted, "now"},
		"GONE":        {Gone, "now"},
		"QUARANTINED": {Quarantined, "now rest"},
	}),
	OpRelease: {
		"OK":        {Granted, ""},
		"AGAIN":     {Granted, ""},
		"GONE":      {Gone, ""},
		refusedWord: {Gone, ""},
		revokedWord: {Gone, ""},
		"LATE":      {TooLate, ""},
	},
	OpRevoke: {
		"ENDED": {Granted, "rest"},
		"GONE":  {Gone, ""},
	},
	OpForget: {
		"OK":    {Granted, ""},
		"NONE":  {Gone, ""},
		"OTHER": {Done, ""},
	},
	OpProbe: nil,
}

// withChecks adds the replies of scripts that first check the clocks and the guard.
func withChecks(g grammar) grammar {
	maps.Copy(g, grammar{
		"CLOCK":   {ClockSkewed, "us"},
		"REPLICA": {Replica, "now"},
		"NOGUARD": {Unguarded, "now"},
	})
	return g
}
