// Package databases has the tests of package fence on real databases: SQLite always, and PostgreSQL and MariaDB if
// LOCKKIT_FENCE=required is set, as "make fence" does.
package databases
