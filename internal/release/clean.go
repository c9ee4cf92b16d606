package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// clean returns the environment of a new user: the home directory is empty, and so is the module cache, unless a step
// has filled it. The build cache is the machine's.
//
// The module comes from maker. Other modules come from the machine's module cache, or else from the machine's proxy.
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
		"GONOSUMDB=" + r.module, // the checksum database does not have it
		// The module cache can be removed, and its place does not change builds.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	}, nil
}

// downloads is a module cache as a proxy.
func downloads(moduleCache string) string {
	return "file://" + filepath.ToSlash(filepath.Join(moduleCache, "cache", "download"))
}
