package leader

import (
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// What this package's errors match, beside core's sentinels.
var (
	// ErrNotLeader: another process leads, or nobody does.
	ErrNotLeader = errors.New("not the leader")
	// ErrLost: this process does not lead any more. Where the leadership was not given up, core.ErrLost matches as well.
	ErrLost = errors.New("leadership lost")
	// ErrNoLeader: nobody is known to lead.
	ErrNoLeader = errors.New("no leader is known")
)

var (
	// errResigned is what a term ends with by Resign or Close.
	errResigned = fmt.Errorf("%w: resigned", ErrLost)
	errClosed   = fmt.Errorf("leader: %w: the Elector", core.ErrClosed)
)

// Kinds of events that [core.Observer.Event] hears, with source "cronlock" and the group as name.
const (
	EventElected  = "leader_elected"  // this process leads
	EventDeposed  = "leader_lost"     // it has lost the leadership
	EventResigned = "leader_resigned" // it has given it up
)
