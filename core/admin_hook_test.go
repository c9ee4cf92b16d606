package core_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

func init() {
	o := &core.Operators
	o.Dial, o.Provision, o.ForgetRecord, o.TokenMismatch = admin.Dial, admin.Provision, admin.ForgetRecord, admin.ErrTokenMismatch
	o.Revoke = func(ctx context.Context, l *core.Locker, key string, token uint64) (core.Revocation, error) {
		r, err := admin.Revoke(ctx, l, key, token)
		return core.Revocation(r), err
	}
	o.Diagnose = func(ctx context.Context, nodes []redis.UniversalClient, opts ...core.Option) (d core.Diagnosis, err error) {
		found, err := admin.Diagnose(ctx, nodes, opts...)
		d.Findings = findings(found.Findings)
		for _, n := range found.Nodes {
			d.Nodes = append(d.Nodes, core.NodeDiagnosis{Node: n.Node, Addr: n.Addr, Reached: n.Reached, Err: n.Err, Findings: findings(n.Findings)})
		}
		return d, err
	}
}

func findings(found []admin.Finding) (fs []core.Finding) {
	for _, f := range found {
		fs = append(fs, core.Finding(f))
	}
	return fs
}
