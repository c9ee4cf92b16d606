// Package tools has no code: its module pins the linter.
package tools
