package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
)

// A dying connector makes the connection die at one of the operations that begin, use or end a transaction.
type dying struct {
	driver.Connector
	operations atomic.Int64 // since arm
	dieAt      atomic.Int64 // number of the operation, from 1; 0: none
	after      atomic.Bool  // it dies when the server has carried out the operation
	isGone     atomic.Bool  // no new connection can be made either
	onCommit   atomic.Pointer[func()]
	before     func(operation string) // is called before each operation, unless it is nil
}

var errDied = errors.New("the connection died")

// arm makes the n-th operation from now on die.
func (d *dying) arm(n int64, after bool) {
	d.operations.Store(0)
	d.after.Store(after)
	d.dieAt.Store(n)
}

// disarm makes all operations live, and reports whether one has died.
func (d *dying) disarm() bool {
	died := d.operations.Load() >= d.dieAt.Load()
	d.dieAt.Store(0)
	return died
}

func (d *dying) Connect(ctx context.Context) (driver.Conn, error) {
	if d.isGone.Load() {
		return nil, errDied
	}
	conn, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &dyingConn{Conn: conn, d: d}, nil
}

// A dyingConn is a connection. Only one goroutine uses it at a time.
type dyingConn struct {
	driver.Conn
	d    *dying
	dead bool
}

// do carries out an operation, unless the connection dies before or after it. The operation is told whether it is the
// last one.
func (c *dyingConn) do(name string, operation func(isLast bool) error) error {
	if c.d.before != nil {
		c.d.before(name)
	}
	dies := c.d.operations.Add(1) == c.d.dieAt.Load()
	if dies && !c.d.after.Load() {
		return c.die()
	}
	err := operation(dies)
	if dies && err == nil {
		return c.die()
	}
	return err
}

func (c *dyingConn) die() error {
	c.dead = true
	_ = c.Conn.Close()
	return errDied
}

func (c *dyingConn) IsValid() bool {
	if v, ok := c.Conn.(driver.Validator); ok && !c.dead {
		return v.IsValid()
	}
	return !c.dead
}

func (c *dyingConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok && !c.dead {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *dyingConn) Close() error {
	if c.dead {
		return nil
	}
	return c.Conn.Close()
}

func (c *dyingConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *dyingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.do("begin", func(bool) (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	return dyingTx{tx, c}, err
}

func (c *dyingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	if c.dead {
		return nil, errDied
	}
	err = c.do("exec", func(bool) (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *dyingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if c.dead {
		return nil, errDied
	}
	err = c.do("query", func(isLast bool) (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		if err == nil && isLast { // SQLite writes with the first row, and ends the transaction with its last statement
			_ = rows.Next(make([]driver.Value, len(rows.Columns())))
			_ = rows.Close()
		}
		return err
	})
	return rows, err
}

func (c *dyingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.dead {
		return nil, errDied
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

type dyingTx struct {
	driver.Tx
	c *dyingConn
}

func (t dyingTx) Commit() error {
	return t.c.do("commit", func(bool) error {
		if f := t.c.d.onCommit.Load(); f != nil {
			(*f)()
		}
		return t.Tx.Commit()
	})
}

func (t dyingTx) Rollback() error {
	if t.c.dead {
		return errDied
	}
	return t.Tx.Rollback()
}

// mortal returns a bank whose connections die as d says.
func (b *bank) mortal() (*bank, *dying) {
	d := &dying{Connector: b.connector}
	other := *b
	other.db = sql.OpenDB(d)
	b.Cleanup(func() { other.db.Close() })
	return &other, d
}
