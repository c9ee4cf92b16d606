// Package nodemodel is a model of a node: its memory, and the effect and the reply of each request. It is written from
// the documents (the contracts at the heads of the .lua files, docs/guarantees.md, docs/models) and shares no code with
// the scripts. It is as plain as possible and knows nothing of speed: there is one form of each request.
// TestScriptsDoAsTheModel compares the scripts with it.
//
// All functions of the model are pure: they return the new state and leave the old one as it was. Times are the node's,
// in ms, if nothing else is said.
//
// [Run] makes embedded nodes answer by the model: the simulations use it, because the model is many times as fast as the
// Lua interpreter.
package nodemodel
