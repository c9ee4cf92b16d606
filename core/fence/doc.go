// Package fence makes a database refuse the writes of stale lock holders, and makes the effect of a piece of work
// happen exactly once in that database. It is for PostgreSQL, MariaDB and SQLite, by database/sql or any other
// library.
//
//	store := fence.New(fence.PostgreSQL) // its tables: lockctl fence-schema postgresql
//	…
//	receipt, err := store.Do(ctx, db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", amount, account)
//		return []byte("booked"), err
//	})
//
// ctx is the context of a function under a lock: of a handler of httplock, a task of queuelock, a run of cronlock,
// or of core.Locker.Once outside of them, which all name the work. Under core.Locker.Do, name it by WithWork. The lines
// are the same in all of these places: examples/minimal/once has a request, a task and a tick.
//
//	Do                      check, record, run a function and commit, in one transaction
//	DoChecked               the same without the record: the function may run again
//	Check, CheckLease       refuse a stale holder, in a transaction of your own
//	CheckPermit             the same for a permit of a semaphore, slot by slot
//	Once, SetResult, Step   record the work, in a transaction of your own
//	Schema, Clean           the tables, and their old rows
//
// Package redisfence does the same as Check in Redis. Package httpfence passes a token to another service, whose
// database checks it. For objects and for a column of your own, docs/recipes.md has tested code.
//
// # Guarantee
//
// Once a transaction that began with Check under a fencing token has been committed, no transaction that began with
// Check under a smaller token of the same key is committed. This holds as long as:
//
//   - every transaction that writes under the key calls Check, as its first statement;
//   - the fencing tokens of the key grow (guarantee 3 in docs/guarantees.md);
//   - the database does not lose transactions that it has committed, as after a failover to a replica that lags;
//   - only Clean deletes rows of the tables, and the clock of the database is right to a day.
//
// The effect of a work that is done by Do, or together with Once, is committed exactly once in that database, or
// never, even if processes, connections and locks fail. This holds within the retention, as long as:
//
//   - each try of the work has the same identity, and other work has another one ([core.Locker.WithWork]);
//   - all tries use the same database, and the effect is in the transaction of Once, which is committed only if Once
//     returned nil;
//   - the database keeps what it has committed, as above.
//
// # Non-guarantee
//
// Effects outside of the transaction (a mail, a call of another service) happen as often as the function runs. If a
// process dies and no other repeats the work, it is never done. After the retention, the work can run again.
//
// # Order
//
// Check comes first, before any read that the write depends on. It locks the row of the key until the transaction
// ends. So a stale holder has either committed before, and the later holder reads its writes; or it waits for the
// row, and is refused. For the same reason, the loss of a lease between Check and the commit does no harm: the check
// of any later holder waits for the commit. If a holder reads before its Check, a stale holder can commit in
// between, and its write is overwritten. The levels REPEATABLE READ and SERIALIZABLE of PostgreSQL and SERIALIZABLE of
// MariaDB make one of the two fail; the other levels do not (TestReadBeforeCheck). Do has the right order.
//
// Do checks one lease, the innermost one. Under core.Locker.DoAll, the function that it runs begins with CheckLease for
// each of the leases that [core.Locker.Holding] returns. Otherwise a stale holder of one of the other keys can write.
//
// # Transactions
//
// Outside of a transaction, a check would be committed before the effect, so a *sql.DB and a connection are no [Tx].
// For pgx, a Tx is:
//
//	type pgxTx struct{ tx pgx.Tx }
//
//	func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
//		tag, err := t.tx.Exec(ctx, query, args...)
//		return tag.RowsAffected(), err
//	}
//
//	func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) fence.Row {
//		return t.tx.QueryRow(ctx, query, args...)
//	}
//
// If Check, Once or SetResult fails, roll back. Above all, do so after a deadlock in MariaDB: the server has ended
// the transaction by then, and later statements are committed one by one.
//
// # Several transactions
//
// A work with several transactions names them. Otherwise the second one finds that the work is done, and is skipped:
//
//	debit, err := store.Do(fence.Step(ctx, "debit"), db, …)
//	if err != nil && !errors.Is(err, core.ErrDone) {
//		return err
//	}
//	credit, err := store.Do(fence.Step(ctx, "credit"), db, …)
//	if err != nil && !errors.Is(err, core.ErrDone) {
//		return err
//	}
//
// Do not return core.ErrDone of a step from a handler. The adapters do not take it for the end of the work, and run the
// work again, because the other steps may not be done.
//
// A task, request or tick that does several pieces of work, such as the members of an aggregated task, names each of
// them by [core.Locker.WithWork], or by Step. Locker.Once inside of it does not: it keeps the name of its caller.
//
// # Errors
//
//	core.ErrDone      an earlier transaction has done the work: take the result that Do returns, or OpError.Record
//	ErrStale          a later holder has been at work: stop. It also matches core.ErrLost
//	ErrTooOld         the lease is older than 30 days and has not written for as long: acquire it again
//	ErrUnknown        COMMIT had no answer, and the database could not be asked in time: repeat Do
//	core.ErrInvalid   a bug in the caller: no lease, no name of the work, a result of more than 64 KiB, a function of Do
//	                  that returns core.ErrDone
//
// In handlers, return these errors: the adapters know them. If the work is done, queuelock records the task as
// completed, and cronlock completes the tick. If the token is stale, queuelock delivers the task again without
// counting a retry, and cronlock interrupts the tick. A handler of httplock writes the stored result as its
// response, and passes a stale token to httplock.Lost; or to httpfence.Refuse, if the token was received.
//
// # COMMIT without an answer
//
// If the connection or the context ends in COMMIT, it is unknown whether the transaction was committed. Do then
// records the work again in a transaction that it rolls back. The database makes that wait until the one in question
// has ended, so its answer is certain. If there is none within 10 s, the error matches ErrUnknown, and neither a
// loss nor a success. DoChecked has no record to ask for, so it returns ErrUnknown at once.
//
// Whether a context ends a COMMIT or ROLLBACK that hangs is up to the driver. go-sql-driver/mysql waits until TCP gives up:
// set readTimeout in its DSN, to more than innodb_lock_wait_timeout. Until then, Do does not return.
//
// # Databases
//
// PostgreSQL 12 and MariaDB 10.5 or later, on every isolation level. The tables of MariaDB must have InnoDB, which
// the Store checks. MySQL is not supported: it lacks INSERT … RETURNING, which this dialect uses.
//
// SQLite 3.35 or later: Check is a write, so a plain BEGIN takes the write lock there. If a transaction reads
// before, SQLite may refuse its Check (SQLITE_BUSY): let transactions begin with the lock, by _txlock=immediate in
// the DSN of modernc.org/sqlite and mattn/go-sqlite3. Set a busy timeout in the DSN, too.
//
// Keys and identities are stored as SHA-256 hashes, so collations do not matter, and the tables have no secrets.
// Tokens are signed 64-bit numbers. A Store is for one database.
//
// # Clean-up
//
// Call [Store.Clean] about once a day. By the clock of the database, it deletes the row of a key 31 days after its
// last Check, and the record of work after its retention. A token that is older than 30 days makes no new row, and
// is refused with ErrTooOld: a machine that was suspended for a month must not write. A lease that is held for
// longer passes as long as it checks at least once in 30 days.
//
// # Cost
//
// Check is one statement, on one row of the key. So transactions under one key run one after the other from Check to
// commit, as they do under the lock anyway. Do adds two more statements, for the record and its result.
package fence
