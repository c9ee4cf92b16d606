package httplock

import (
	"cmp"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// A route is the route that a router has matched to a request.
type route struct {
	template    string // empty if there is none
	parameters  []parameter
	isAmbiguous bool // two parameters have the same name, so the value of one of them is not known
}

// A parameter is a parameter of a route's template, with its value in the request.
type parameter struct{ name, value string }

// ginRoute returns the route that gin has matched.
func ginRoute(c *gin.Context) route {
	r := route{template: c.FullPath()}
	for _, p := range c.Params {
		r.parameters = append(r.parameters, parameter{p.Key, p.Value})
	}
	return r
}

// lockIsLast reports whether gin has no route for the request, and no handler after Lock except other Locks. Then Lock
// comes from Engine.Use, and gin responds with 404 or 405.
func (rs *requestState) lockIsLast() bool {
	if rs.gin == nil || rs.route.template != "" {
		return false
	}

	lock := runtime.FuncForPC(reflect.ValueOf(rs.m.Lock).Pointer()).Name()
	names := rs.gin.HandlerNames()
	first := slices.Index(names, lock)
	if first < 0 {
		return false
	}
	return !slices.ContainsFunc(names[first:], func(name string) bool { return name != lock })
}

// httpRoute returns the route that a router such as http.ServeMux or chi has stored in the request.
func httpRoute(req *http.Request) route {
	r := route{template: stripMethod(req.Pattern)}
	for _, name := range parameterNames(r.template) {
		value := req.PathValue(name) // empty for text that is no parameter, as in /orders:cancel
		_, isKnown := r.parameter(name)
		r.isAmbiguous = r.isAmbiguous || isKnown && value != ""
		r.parameters = append(r.parameters, parameter{name, value})
	}
	return r
}

var errAmbiguous = misplaced(
	"Give each parameter of the route a name of its own, also in routers that are mounted in one another.",
	"two parameters of the route have the same name",
)

// parameter returns the value of a parameter, and whether the route has it.
func (r route) parameter(name string) (value string, ok bool) {
	i := slices.IndexFunc(r.parameters, func(p parameter) bool { return p.name == name })
	if i < 0 {
		return "", false
	}
	return r.parameters[i].value, true
}

// methodPattern matches a token of RFC 9110.
var methodPattern = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// stripMethod returns a pattern without its method. Routers other than http.ServeMux have patterns without a method, in
// which a blank is a part of the path.
func stripMethod(pattern string) string {
	i := strings.IndexAny(pattern, " \t")
	if i < 0 || !methodPattern.MatchString(pattern[:i]) {
		return pattern
	}
	return strings.TrimLeft(pattern[i:], " \t")
}

// parameterNames returns the names of the parameters of a template, in its order. It knows {id}, {id...} and
// {id:regexp}, as in net/http and chi, and :id and *path, as in other routers, of which some allow :id after other text.
// An asterisk without a name is the parameter "*", as in chi and echo.
func parameterNames(template string) (names []string) {
	for i := 0; i < len(template); {
		rest := template[i:]
		atSegment := i == 0 || template[i-1] == '/'
		switch c := rest[0]; {
		case c == '{':
			// {id}, {id...} or {id:regexp}; {$} is not a parameter.
			length := bracedLength(rest)
			if name := wildcardName(rest[:length]); name != "" {
				names = append(names, name)
			}
			i += length
		case c == ':', atSegment && c == '*':
			// :id or *path, up to the end of the segment. A colon before {id} is text.
			name := rest[1:]
			if end := strings.IndexAny(name, "/{"); end >= 0 {
				name = name[:end]
			}
			i += 1 + len(name)
			if c == '*' {
				name = cmp.Or(name, "*")
			}
			if name != "" {
				names = append(names, name)
			}
		case rest == "*":
			// An asterisk at the end, after other text.
			names = append(names, "*")
			i++
		default:
			i++
		}
	}
	return names
}

// bracedLength returns the length of the text in braces at the beginning of s. A regular expression in it may have
// braces, too.
func bracedLength(s string) int {
	depth := 0

	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(s)
}

// wildcardName returns the name in {name}, {name...} or {name:regexp}, and "" for {$}.
func wildcardName(wildcard string) string {
	name, _, _ := strings.Cut(strings.Trim(wildcard, "{}"), ":")
	name = strings.TrimSuffix(name, "...")
	if name == "$" {
		return ""
	}
	return name
}
