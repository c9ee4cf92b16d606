package sim

import (
	"github.com/lockkit/lockkit/internal/nodemodel"
	"github.com/lockkit/lockkit/testutil"
)

// byScripts is 50 if the nodes run the scripts in every fiftieth seed.
const byScripts = 50

// ByModel makes nodes answer by the model of a node, which costs a fraction of the scripts. In every fiftieth seed it
// does nothing, so that the scripts are simulated, too.
func ByModel(seed uint64, nodes ...*testutil.Node) {
	if seed%byScripts == 0 {
		return
	}

	for _, n := range nodes {
		nodemodel.Run(n)
	}
}
