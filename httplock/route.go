package httplock

import (
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// A route is what a router has found for a request.
type route struct {
	template   string // empty if there is none
	parameters []parameter
}

// A parameter is one of a route's template, with the value that the request has for it.
type parameter struct{ name, value string }

// routeOfGin returns the route that gin has found.
func ginRoute(c *gin.Context) route {
	r := route{template: c.FullPath()}
	for _, p := range c.Params {
		r.parameters = append(r.parameters, parameter{p.Key, p.Value})
	}
	return r
}

// endsAtLock reports whether gin has no route for the request, and no handler after Lock that is not a Lock: Engine.Use has
// put it there, and gin answers with 404 or 405.
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

// routeOf returns the route that a router has left in the request, as http.ServeMux and chi do.
func httpRoute(req *http.Request) route {
	r := route{template: stripMethod(req.Pattern)}
	for _, name := range parameterNames(r.template) {
		r.parameters = append(r.parameters, parameter{name, req.PathValue(name)})
	}
	return r
}

// parameter returns the value of a parameter, and whether the route has it.
func (r route) parameter(name string) (value string, ok bool) {
	i := slices.IndexFunc(r.parameters, func(p parameter) bool { return p.name == name })
	if i < 0 {
		return "", false
	}
	return r.parameters[i].value, true
}

// A method is a token of RFC 9110.
var methodPattern = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// templateOf returns a pattern without its method. Routers other than http.ServeMux have patterns without one, in which a
// blank is a part of the path.
func stripMethod(pattern string) string {
	i := strings.IndexAny(pattern, " \t")
	if i < 0 || !methodPattern.MatchString(pattern[:i]) {
		return pattern
	}
	return strings.TrimLeft(pattern[i:], " \t")
}

// wildcards returns the names of the parameters of a template, in its order: of {id}, {id...} and {id:regexp} as net/http and
// chi have them, of :id and *path as others have them, and "*", which chi and echo call what an asterisk matches.
func parameterNames(template string) (names []string) {
	for i := 0; i < len(template); {
		rest := template[i:]
		atSegment := i == 0 || template[i-1] == '/'
		switch c := rest[0]; {
		case c == '{':
			length := bracedLength(rest)
			if name := wildcardName(rest[:length]); name != "" {
				names = append(names, name)
			}
			i += length
		case atSegment && (c == ':' || c == '*'):
			segment, _, _ := strings.Cut(rest, "/")
			name := segment[1:]
			if c == '*' && name == "" {
				name = "*"
			}
			names = append(names, name)
			i += len(segment)
		case rest == "*": // at the end, behind other text
			names = append(names, "*")
			i++
		default:
			i++
		}
	}
	return names
}

// braced returns the length of the text in braces that s begins with. Regular expressions in it may have braces, too.
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

// nameIn returns the name in {name}, {name...} or {name:regexp}, and nothing for {$}.
func wildcardName(wildcard string) string {
	name, _, _ := strings.Cut(strings.Trim(wildcard, "{}"), ":")
	name = strings.TrimSuffix(name, "...")
	if name == "$" {
		return ""
	}
	return name
}
