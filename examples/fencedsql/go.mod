// A module of its own, so that the database driver is a dependency of nothing else.
module github.com/lockkit/lockkit/examples/fencedsql

go 1.26.0

require (
	github.com/hibiken/asynq v0.26.0
	github.com/lockkit/lockkit v0.0.0
	modernc.org/sqlite v1.61.1
)

replace github.com/lockkit/lockkit => ../..
