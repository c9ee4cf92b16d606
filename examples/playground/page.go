package main

import "net/http"

// page is the page and what belongs to it.
func page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the page is missing in this build; see /events and /history", http.StatusNotFound)
	})
}
