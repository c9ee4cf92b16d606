package queuelock

import (
	"sync"

	"github.com/lockkit/lockkit/core"
)

// maxTypes bounds how many types of tasks observers see by name. asynq matches handlers by prefix, so types
// may be made up at run time.
const maxTypes = 256

// A lockerPair takes keys for one type of task.
type lockerPair struct {
	brief   *core.Locker // waits for WithWait
	patient *core.Locker // waits until its context ends
}

// lockers derives the pairs.
type lockers struct {
	root  *core.Locker
	conf  config
	other *lockerPair

	mu     sync.Mutex
	byType map[string]*lockerPair
}

func newLockers(root *core.Locker, conf config) (*lockers, error) {
	l := &lockers{root: root, conf: conf, byType: map[string]*lockerPair{}}
	var err error
	l.other, err = l.derive("other")
	return l, err
}

func (l *lockers) named(typ string) *lockerPair {
	l.mu.Lock()
	defer l.mu.Unlock()
	pair, ok := l.byType[typ]
	if !ok && len(l.byType) < maxTypes {
		var err error
		if pair, err = l.derive(typ); err != nil {
			pair = l.other // cannot be: it differs in name only
		}
		l.byType[typ] = pair
	}
	if pair == nil {
		return l.other
	}
	return pair
}

func (l *lockers) derive(name string) (*lockerPair, error) {
	base := []core.Option{core.WithDetachedLease(false), core.WithName(name), core.WithRetention(l.conf.retention), core.WithResultLimit(resultLimit)}
	brief, err := l.root.With(append(base, core.WithMaxWait(max(l.conf.wait, 0)))...)
	if err != nil {
		return nil, err
	}
	patient, err := l.root.With(append(base, core.WithMaxWait(0))...)
	return &lockerPair{brief, patient}, err
}

// resultLimit leaves room for what complete writes, and for a handler that completes its lease by itself.
const resultLimit = 4 << 10
