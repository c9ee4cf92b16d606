package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// clean returns the environment of a user who has nothing: the home directory is new, and so is the module cache, unless
// a step has filled it. Builds are cached where they always are.
//
// The module comes from maker. Other modules come from the machine's module cache, as far as it has them, and else from
// where the go command finds modules on this machine.
func (r *release) clean(ctx context.Context, moduleCache string) (env []string, err error) {
	answer, err := output(ctx, r.repository, nil, "go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB")
	if err != nil {
		return nil, err
	}
	machine := map[string]string{}
	err = json.Unmarshal([]byte(answer), &machine)
	if err != nil {
		return nil, err
	}

	home := filepath.Join(r.work, "home")
	err = os.MkdirAll(home, 0o700)
	if err != nil {
		return nil, err
	}

	proxies := []string{downloads(r.maker()), downloads(machine["GOMODCACHE"]), machine["GOPROXY"]}
	return []string{
		"HOME=" + home,
		"XDG_CONFIG_HOME=" + home,
		"GOENV=off",
		"GOWORK=off",
		"GOPATH=" + filepath.Join(home, "go"),
		"GOMODCACHE=" + moduleCache,
		"GOCACHE=" + machine["GOCACHE"],
		"GOPROXY=" + strings.Join(proxies, ","),
		"GOSUMDB=" + machine["GOSUMDB"],
		"GOPRIVATE=",
		"GONOPROXY=",
		"GONOSUMDB=" + r.module, // nobody has seen this tag
		// A cache that can be removed, and builds that do not depend on where it was.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	}, nil
}

// downloads is a module cache as a proxy.
func downloads(moduleCache string) string {
	return "file://" + filepath.ToSlash(filepath.Join(moduleCache, "cache", "download"))
}
