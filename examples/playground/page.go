package main

import (
	"embed"
	"net/http"
)

// The page as it is served: no build step, and nothing from elsewhere.
//
//go:embed static
var static embed.FS

// pagePolicy has a browser take scripts and styles from here only, and none that are written into the page.
const pagePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page is the page and what belongs to it.
func page() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, static, "static/page.html")
	})
	mux.Handle("GET /static/", http.FileServerFS(static))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", pagePolicy)
		mux.ServeHTTP(w, r)
	})
}
