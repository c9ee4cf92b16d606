package queuelock

import "sync"

// maxTypes bounds how many types of tasks observers see by name. asynq matches handlers by prefix, so types
// may be made up at run time.
const maxTypes = 256

// names are the types that observers see.
type names struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// of is the name of a type of tasks.
func (n *names) of(typ string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[typ]; !ok {
		if len(n.known) >= maxTypes {
			return "other"
		}
		if n.known == nil {
			n.known = map[string]struct{}{}
		}
		n.known[typ] = struct{}{}
	}
	return typ
}
