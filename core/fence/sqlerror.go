package fence

import (
	"reflect"
	"strings"
)

// A kind is the meaning of an error of a database for its statement or transaction.
type kind uint8

const (
	kindOther      kind = iota
	kindRolledBack      // the transaction has failed because of others, and can be repeated
	kindRefused         // the transaction cannot be committed as it is
	kindNoTable         // a table or a column is missing
	kindSyntax          // the server does not know this dialect of SQL
)

// kindOf returns the kind of an error. It knows the errors of pgx, lib/pq, go-sql-driver/mysql, modernc.org/sqlite
// and mattn/go-sqlite3 by their shape, so that this package needs no driver.
func kindOf(err error) kind {
	if err == nil {
		return kindOther
	}
	if k := kindOfDriver(err); k != kindOther {
		return k
	}

	switch wrapper := err.(type) { //nolint:errorlint // kindOf itself walks the tree
	case interface{ Unwrap() error }:
		return kindOf(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if k := kindOf(inner); k != kindOther {
				return k
			}
		}
	}
	return kindOther
}

// kindOfDriver returns the kind of an error that a driver has made. The packages of drivers for SQLite and MariaDB
// have these in their names: other errors with a field Code or Number do not count.
func kindOfDriver(err error) kind {
	if postgres, ok := err.(interface{ SQLState() string }); ok {
		return kindOfState(postgres.SQLState())
	}

	// Drivers for PostgreSQL say so if COMMIT was answered with a rollback, because a statement had failed before.
	switch err.Error() {
	case "commit unexpectedly resulted in rollback", "pq: Could not complete operation in a failed transaction":
		return kindRefused
	}

	typeName := reflect.TypeOf(err).String()
	fields := reflect.Indirect(reflect.ValueOf(err))

	switch {
	case strings.Contains(typeName, "sqlite"):
		if coded, ok := err.(interface{ Code() int }); ok {
			return kindOfSQLite(coded.Code(), err.Error())
		}
		if code := fieldOf(fields, "Code"); code.IsValid() && code.CanInt() {
			return kindOfSQLite(int(code.Int()), err.Error())
		}
	case strings.Contains(typeName, "mysql"):
		if number := fieldOf(fields, "Number"); number.IsValid() && number.CanUint() {
			return kindOfMariaDB(number.Uint())
		}
	}
	return kindOther
}

// fieldOf returns a field of a struct, or an invalid value.
func fieldOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// kindOfState returns the kind of a SQLSTATE of PostgreSQL.
func kindOfState(state string) kind {
	switch {
	case state == "40003": // statement completion unknown
		return kindOther
	case state == "40001", state == "40P01": // serialization failure, deadlock
		return kindRolledBack
	case state == "42P01", state == "42703": // a table or a column is missing
		return kindNoTable
	case state == "42601", state == "42883", state == "42704": // syntax, undefined function, undefined object
		return kindSyntax
	}

	switch state[:min(len(state), 2)] {
	case "23", "25", "40": // constraints, states of transactions, rollbacks
		return kindRefused
	}
	return kindOther
}

// kindOfMariaDB returns the kind of an error number of MariaDB.
func kindOfMariaDB(number uint64) kind {
	switch number {
	case 1213, 1205, 1020: // deadlock, lock wait timeout, changed since the snapshot
		return kindRolledBack
	case 1146:
		return kindNoTable
	case 1064, 1305: // syntax, unknown function
		return kindSyntax
	}
	return kindOther
}

// kindOfSQLite returns the kind of a result code of SQLite, which may be an extended one.
func kindOfSQLite(code int, text string) kind {
	const busy, generic, constraint = 5, 1, 19
	switch code & 0xff {
	case busy:
		return kindRolledBack
	case constraint:
		return kindRefused
	case generic:
		switch {
		case strings.Contains(text, "no such table"):
			return kindNoTable
		case strings.Contains(text, "syntax error"), strings.Contains(text, "no such function"),
			strings.Contains(text, "unrecognized token"):
			return kindSyntax
		}
	}
	return kindOther
}
