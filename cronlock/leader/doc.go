// Package leader elects one leader among the processes of a group.
//
//	e, err := leader.New(locker, "billing", leader.OnElected(func(ctx context.Context, t leader.Term) {
//		serve(ctx, t.FencingToken) // ctx ends when this process is to lead no more
//	}))
//
// # Guarantee
//
// One process of a group leads at a time. A leader has ceased to lead, by its own clock and without any answer from the
// network, before another one begins. Each term has a fencing token that is greater than that of every term of the group
// before it. A leader that resigns finishes the work that has entered its term before anybody else leads. An election goes
// on until Close, whatever fails meanwhile: as long as candidates reach a quorum of nodes, one of them leads. All that
// holds under the assumptions of package core.
//
// # Non-guarantee
//
// Work that does not look at its context goes on when the term is lost, beside that of the next leader, as does a process
// that is paused between looking and acting: have what you write to refuse a fencing token smaller than one it has seen.
// While no quorum of nodes answers for as long as the TTL, nobody leads. Who leads ([Elector.Leader]) is what the last
// leader has recorded: it is for people and pages, and excludes nobody.
//
// # Coming from
//
//	from                       what changes
//	client-go leaderelection   RunOrDie is New: it does not end with the first term. OnStartedLeading is OnElected,
//	                           OnStoppedLeading OnLost; GetLeader is Leader, ReleaseOnCancel is what Close does, and
//	                           HealthzAdaptor is Check. LeaseDuration is the Locker's core.TTL.
//	gocron-etcd-elector        An Elector is a gocron.Elector: gocron.WithDistributedElector(e). Ticks that fall due
//	                           while nobody leads are lost, and the context of a run does not end with the term, unless
//	                           its task calls Enter. gocron keeps an entry in memory for each tick that its elector
//	                           refuses, for as long as the process lives. Prefer a Cron of package cronlock.
//	River                      RequestResign is RequestResign; the leader looks for it every three seconds.
package leader
