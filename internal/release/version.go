package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A version is vX.Y.Z.
type version struct {
	major, minor, patch int
}

var versionForm = regexp.MustCompile(`^v(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})$`)

// parseVersion reads a version as tags have it.
func parseVersion(name string) (version, error) {
	found := versionForm.FindStringSubmatch(name)
	if found == nil {
		return version{}, fmt.Errorf("%q is not a version: want vX.Y.Z, such as v0.1.0", name)
	}

	var numbers [3]int
	for i, digits := range found[1:] {
		numbers[i], _ = strconv.Atoi(digits) // nine digits at most
	}
	return version{numbers[0], numbers[1], numbers[2]}, nil
}

func (v version) String() string {
	return fmt.Sprintf("v%d.%d.%d", v.major, v.minor, v.patch)
}

// compare is negative if v is lower than other, and positive if it is higher.
func (v version) compare(other version) int {
	return cmp.Or(
		cmp.Compare(v.major, other.major),
		cmp.Compare(v.minor, other.minor),
		cmp.Compare(v.patch, other.patch),
	)
}

// mayBreak reports whether v may lack declarations that last has. Before v1, Y is raised for that.
func (v version) mayBreak(last version) bool {
	return v.major > last.major || v.major == 0 && v.minor > last.minor
}

// latestBefore returns the highest of the tags that is a version below v, and whether there is one.
func latestBefore(v version, tags string) (latest version, found bool) {
	for tag := range strings.FieldsSeq(tags) {
		tagged, err := parseVersion(tag)
		if err != nil || tagged.compare(v) >= 0 {
			continue
		}
		if !found || tagged.compare(latest) > 0 {
			latest, found = tagged, true
		}
	}
	return latest, found
}
