package nemesis

import "time"

// faults has every fault. The actions are in faults_servers.go, faults_network.go and faults_clients.go.
var faults = []fault{
	{
		name: "kill -9 of servers", class: ofServers, weight: 4,
		longest: 8 * time.Second,
		aim:     someNodes, strike: killServers, heal: restartServers, fits: mayForgetOrKeeps,
	},
	{
		name: "SIGSTOP of servers", class: ofServers, weight: 4,
		shortest: 200 * time.Millisecond, longest: 8 * time.Second,
		aim: someNodes, strike: stopServers, heal: resumeServers,
	},
	{
		name: "CLIENT KILL", class: ofServers, weight: 2,
		aim: someNodes, strike: killConnections,
	},
	{
		name: "CLIENT PAUSE", class: ofServers, weight: 2,
		shortest: 200 * time.Millisecond, longest: 6 * time.Second,
		aim: someNodes, strike: pauseCommands, heal: resumeCommands,
	},
	{
		name: "DEBUG SLEEP", class: ofServers, weight: 2,
		aim: someNodes, strike: debugSleep,
	},
	{
		name: "SCRIPT FLUSH", class: ofServers, weight: 2,
		aim: someNodes, strike: flushScripts,
	},
	{
		name: "maxmemory", class: ofServers, weight: 2,
		shortest: time.Second, longest: 10 * time.Second,
		aim: someNodes, strike: noMemory, heal: memoryAgain,
	},
	{
		name: "rights taken away", class: ofServers, weight: 2,
		shortest: 500 * time.Millisecond, longest: 8 * time.Second,
		aim: someNodes, strike: noRights, heal: rightsAgain,
	},

	{
		name: "restart empty", class: ofMemory, weight: 4,
		aim: manyNodes, strike: restartEmpty, fits: mayForget,
	},
	{
		name: "restart with an old snapshot", class: ofMemory, weight: 3,
		shortest: time.Second, longest: 10 * time.Second,
		aim: manyNodes, strike: takeSnapshot, heal: restoreSnapshot, fits: mayForget,
	},
	{
		name: "FLUSHALL", class: ofMemory, weight: 2,
		aim: manyNodes, strike: flushAll, fits: mayForget,
	},
	{
		name: "promotion of a replica", class: ofMemory, weight: 2,
		aim: oneNode, strike: promote, fits: mayForget,
	},
	{
		name: "a name that moves", class: ofMemory, weight: 2,
		shortest: time.Second, longest: 6 * time.Second,
		aim: oneNode, strike: moveName, heal: retireOld, fits: mayForget,
	},

	{
		name: "partition from a minority", class: ofNetwork, weight: 2,
		shortest: 500 * time.Millisecond, longest: 10 * time.Second,
		aim: allClients(minority), strike: cutOff, heal: reconnect, fits: several,
	},
	{
		name: "partition from a majority", class: ofNetwork, weight: 2,
		shortest: 500 * time.Millisecond, longest: 8 * time.Second,
		aim: allClients(majority), strike: cutOff, heal: reconnect,
	},
	{
		name: "bridge", class: ofNetwork, weight: 3,
		shortest: time.Second, longest: 10 * time.Second,
		aim: allClients(everyNode), strike: bridge, heal: reconnect, fits: several,
	},
	{
		name: "one client cut off", class: ofNetwork, weight: 3,
		shortest: 500 * time.Millisecond, longest: 12 * time.Second,
		aim: oneClient(everyNode), strike: cutOff, heal: reconnect,
	},
	{
		name: "one direction swallowed", class: ofNetwork, weight: 3,
		shortest: 500 * time.Millisecond, longest: 8 * time.Second,
		aim: oneClient(majority), strike: swallow, heal: reconnect,
	},
	{
		name: "5 % of chunks close their connection", class: ofNetwork, weight: 2,
		shortest: 2 * time.Second, longest: 15 * time.Second,
		aim: wholeNetwork("losses"), strike: loseChunks, heal: keepChunks,
	},
	{
		name: "delays", class: ofNetwork, weight: 2,
		shortest: time.Second, longest: 8 * time.Second,
		aim: wholeNetwork("delays"), strike: delay, heal: noDelay,
	},
	{
		name: "a reply lost", class: ofNetwork, weight: 2,
		aim: wholeNetwork("replies"), strike: loseReplies,
	},

	{
		name: "kill -9 of clients", class: ofClients, weight: 4,
		longest: 5 * time.Second,
		aim:     someClients, strike: killClients, heal: restartClients,
	},
	{
		name: "SIGSTOP of clients", class: ofClients, weight: 5,
		shortest: 200 * time.Millisecond, longest: 12 * time.Second,
		aim: someClients, strike: stopClients, heal: resumeClients,
	},

	{
		name: "clocks of servers", class: ofClocks, weight: 4,
		shortest: time.Second, longest: 10 * time.Second,
		aim: someNodes, strike: moveClocks, heal: setClocks, fits: serverClocksMove,
	},
	{
		name: "clocks of clients", class: ofClocks, weight: 5,
		shortest: 3 * time.Second, longest: 15 * time.Second,
		aim: someClients, strike: skewClients, heal: unskewClients, fits: clientClocksMove,
	},
}

// mayForget reports whether the documents promise anything for servers that lose their memory.
func mayForget(s *stand) bool { return s.forgetful() }

func mayForgetOrKeeps(s *stand) bool { return s.forgetful() || s.persistence == persistAOF }

// several reports whether a part of the nodes can be out of reach while others are not.
func several(s *stand) bool { return s.nodes > 1 }

// The clocks of clients and servers must not be wrong at the same time: if both are wrong in the same way, the clock window
// does not show it.
func serverClocksMove(s *stand) bool { return s.clocks.movable() && !s.skews }

func clientClocksMove(s *stand) bool { return s.o.Moved && s.skews }
