package fence

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// A Dialect is a kind of database.
type Dialect uint8

const (
	PostgreSQL Dialect = iota + 1 // 12 or later
	MariaDB                       // 10.5 or later, with InnoDB; MySQL has no INSERT … RETURNING
	SQLite                        // 3.35 or later
)

// String returns the name of the dialect in lower case, as lockctl takes it.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "postgresql"
	case MariaDB:
		return "mariadb"
	case SQLite:
		return "sqlite"
	}
	return "unknown"
}

// statements are the statements of a dialect.
type statements struct {
	check     statement // inserts or raises a token that is young enough; returns the greatest token, or no row
	raise     statement // raises the token of a row that exists, even if it is old
	token     statement // returns the token of a row, and locks it
	once      statement // inserts a record, or locks the one that exists; returns it
	setResult statement // sets the result of a record that has none
	engines   statement // returns the tables that cannot roll back, or NULL; only MariaDB has it

	staleTokens, expiredRecords statement // return the ids of rows that may be deleted
	deleteToken, deleteRecord   statement // delete a row if it still may be deleted
}

// statementsOf returns the statements of a dialect. All instants are microseconds since 1970, by the database's
// clock.
func statementsOf(d Dialect) *statements {
	compile := func(template string) statement { return d.compile(template) }
	silent := "checked_at < {now} - " + micros(holder.CleanAfter) + " AND token < {now} - " + micros(holder.MaxSilence)
	s := &statements{
		check: compile(checkTemplates[d]),
		raise: compile(`UPDATE lockkit_fence SET token = {token}, checked_at = {now}
WHERE id = {id} AND token <= {token}`),
		token: compile("SELECT token FROM lockkit_fence WHERE id = {id}" + lockClauses[d]),
		once:  compile(onceTemplates[d]),
		setResult: compile(`UPDATE lockkit_once SET result = {result}
WHERE id = {id} AND token = {token} AND result IS NULL`),

		staleTokens:    compile("SELECT id FROM lockkit_fence WHERE " + silent + " LIMIT 100"),
		deleteToken:    compile("DELETE FROM lockkit_fence WHERE id = {id} AND " + silent),
		expiredRecords: compile("SELECT id FROM lockkit_once WHERE expires_at < {now} LIMIT 100"),
		deleteRecord:   compile("DELETE FROM lockkit_once WHERE id = {id} AND expires_at < {now}"),
	}
	if d == MariaDB {
		s.engines = compile(`SELECT GROUP_CONCAT(table_name, ' (', engine, ')')
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ('lockkit_fence', 'lockkit_once') AND engine <> 'InnoDB'`)
	}
	return s
}

// checkTemplates insert a token that is not older than holder.MaxSilence, or set a row to the greater one of its token and
// the new one. They return the token of the row. A row that has a greater token stays as it is.
var checkTemplates = map[Dialect]string{
	PostgreSQL: `INSERT INTO lockkit_fence AS f (id, token, checked_at)
SELECT {id}::bytea, {token}::bigint, {now}
WHERE {token}::bigint >= {now} - ` + micros(holder.MaxSilence) + `
ON CONFLICT (id) DO UPDATE SET token = GREATEST(f.token, excluded.token),
checked_at = CASE WHEN f.token <= excluded.token THEN excluded.checked_at ELSE f.checked_at END
RETURNING token`,

	// MariaDB assigns from left to right, so the time comes before the token.
	MariaDB: `INSERT INTO lockkit_fence (id, token, checked_at)
SELECT {id}, {token}, {now} FROM DUAL
WHERE {token} >= {now} - ` + micros(holder.MaxSilence) + `
ON DUPLICATE KEY UPDATE
checked_at = IF(lockkit_fence.token <= VALUES(token), VALUES(checked_at), lockkit_fence.checked_at),
token = GREATEST(lockkit_fence.token, VALUES(token))
RETURNING token`,

	SQLite: `INSERT INTO lockkit_fence (id, token, checked_at)
SELECT {id}, {token}, {now}
WHERE {token} >= {now} - ` + micros(holder.MaxSilence) + `
ON CONFLICT (id) DO UPDATE SET token = MAX(token, excluded.token),
checked_at = CASE WHEN token <= excluded.token THEN excluded.checked_at ELSE checked_at END
RETURNING token`,
}

// onceTemplates insert a record, or wait for the transaction that has inserted it, and lock it. They return the
// record. Its run tells whether this statement has inserted it: numbers of affected rows depend on settings of the
// driver.
var onceTemplates = map[Dialect]string{
	PostgreSQL: `INSERT INTO lockkit_once AS o (id, token, run, expires_at)
VALUES ({id}, {token}, {run}, {now} + {retention}::bigint)
ON CONFLICT (id) DO UPDATE SET id = o.id RETURNING run, token, result`,
	MariaDB: `INSERT INTO lockkit_once (id, token, run, expires_at) VALUES ({id}, {token}, {run}, {now} + {retention})
ON DUPLICATE KEY UPDATE id = VALUES(id) RETURNING run, token, result`,
	SQLite: `INSERT INTO lockkit_once (id, token, run, expires_at) VALUES ({id}, {token}, {run}, {now} + {retention})
ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING run, token, result`,
}

// lockClauses make a SELECT read the last committed row, instead of the snapshot of the transaction. A transaction
// of SQLite that has written is alone.
var lockClauses = map[Dialect]string{PostgreSQL: " FOR UPDATE", MariaDB: " FOR UPDATE", SQLite: ""}

// clocks are the microseconds since 1970, by the database's clock and independent of its time zone.
var clocks = map[Dialect]string{
	PostgreSQL: "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint",
	MariaDB:    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	SQLite:     "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000)",
}

// schemas are the tables of each dialect.
var schemas = map[Dialect]string{
	PostgreSQL: `-- The greatest fencing token that was seen for each key.
CREATE TABLE lockkit_fence (
    id         bytea  PRIMARY KEY, -- SHA-256 of key prefix and key
    token      bigint NOT NULL,
    checked_at bigint NOT NULL     -- microseconds since 1970, by the clock of the database
);

-- The work that is done.
CREATE TABLE lockkit_once (
    id         bytea  PRIMARY KEY, -- SHA-256 of the identity of the work
    token      bigint NOT NULL,    -- fencing token of the run that did it, 0 if it had none
    run        bytea  NOT NULL,    -- random, differs for each run
    result     bytea,
    expires_at bigint NOT NULL
);
CREATE INDEX lockkit_once_expires_at ON lockkit_once (expires_at);
`,
	MariaDB: `-- The greatest fencing token that was seen for each key.
CREATE TABLE lockkit_fence (
    id         BINARY(32) NOT NULL PRIMARY KEY, -- SHA-256 of key prefix and key
    token      BIGINT     NOT NULL,
    checked_at BIGINT     NOT NULL              -- microseconds since 1970, by the clock of the database
) ENGINE = InnoDB;

-- The work that is done.
CREATE TABLE lockkit_once (
    id         BINARY(32) NOT NULL PRIMARY KEY, -- SHA-256 of the identity of the work
    token      BIGINT     NOT NULL,             -- fencing token of the run that did it, 0 if it had none
    run        BINARY(16) NOT NULL,             -- random, differs for each run
    result     MEDIUMBLOB NULL,
    expires_at BIGINT     NOT NULL,
    KEY lockkit_once_expires_at (expires_at)
) ENGINE = InnoDB;
`,
	SQLite: `-- The greatest fencing token that was seen for each key.
CREATE TABLE lockkit_fence (
    id         BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of key prefix and key
    token      INTEGER NOT NULL,
    checked_at INTEGER NOT NULL              -- microseconds since 1970, by the clock of the database
) WITHOUT ROWID;

-- The work that is done.
CREATE TABLE lockkit_once (
    id         BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the identity of the work
    token      INTEGER NOT NULL,             -- fencing token of the run that did it, 0 if it had none
    run        BLOB    NOT NULL,             -- random, differs for each run
    result     BLOB,
    expires_at INTEGER NOT NULL
);
CREATE INDEX lockkit_once_expires_at ON lockkit_once (expires_at);
`,
}

// micros returns a duration in microseconds.
func micros(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }
