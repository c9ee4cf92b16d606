package fence

import (
	"fmt"
	"strings"
)

// A statement is an SQL statement of a dialect, with named parameters.
type statement struct {
	dialect Dialect
	texts   []string // before the first parameter, between parameters, and after the last one
	names   []string // of the parameters, in the order of the statement
}

// params are the values of the parameters of a statement, by name. A value is a []byte or an int64.
type params map[string]any

// with returns the text of the statement and its arguments. For MariaDB, the values are a part of the text: for each call
// with arguments, go-sql-driver/mysql prepares and closes a statement, unless its DSN has interpolateParams=true.
func (s statement) with(p params) (text string, args []any) {
	var b strings.Builder
	for i, name := range s.names {
		b.WriteString(s.texts[i])

		if s.dialect == MariaDB {
			b.WriteString(literal(p[name]))
			continue
		}
		args = append(args, p[name])
		b.WriteString(s.dialect.placeholder(len(args)))
	}

	b.WriteString(s.texts[len(s.names)])
	return b.String(), args
}

// literal returns a value in SQL. Neither kind has quotes that would have to be escaped.
func literal(value any) string {
	if bytes, isBytes := value.([]byte); isBytes {
		return fmt.Sprintf("X'%x'", bytes)
	}
	return fmt.Sprintf("%d", value)
}

// compile returns the statement of a template. In the template, {now} stands for the clock, and any other name in
// braces for a parameter.
func (d Dialect) compile(template string) statement {
	s := statement{dialect: d}
	template = strings.ReplaceAll(template, "{now}", clocks[d])

	for {
		text, rest, found := strings.Cut(template, "{")
		s.texts = append(s.texts, text)
		if !found {
			return s
		}

		name, after, _ := strings.Cut(rest, "}")
		s.names = append(s.names, name)
		template = after
	}
}

// placeholder returns the placeholder of the n-th parameter, from 1.
func (d Dialect) placeholder(n int) string {
	if d == PostgreSQL {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}
