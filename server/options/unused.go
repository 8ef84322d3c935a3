package options

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
)

// unused are flags of upstream's kcp that its operator passes, and that have no purpose here, with the reason. They are accepted with a
// warning.
var unused = map[string]string{
	"logical-cluster-admin-kubeconfig": "shards call each other with --shard-client-cert-file, and none is the administrator of another",
	"external-logical-cluster-admin-kubeconfig": "shards call each other with --shard-client-cert-file, and none is the administrator of " +
		"another",
	"shard-virtual-workspace-ca-file": "shards do not call kcp virtual-workspaces: clients do, and trust its certificate themselves",
}

// replaced are flags of upstream's kcp that could not do here what they do there, with what to do instead. They are refused.
var replaced = map[string]string{
	"shard-kubeconfig-file":                  "a shard needs no kubeconfig of itself: remove the flag",
	"miniproxy-mapping-file":                 "shards forward no requests: give the file to kcp front-proxy as --mapping-file",
	"root-identities-file":                   "the identities of the exports in root are part of the server: remove the flag",
	"experimental-bind-free-port":            "choose a port with --secure-port",
	"conversion-cel-transformation-timeout":  "conversions are limited by the cost of their expressions: remove the flag",
	"unsupported-run-individual-controllers": "a server runs all controllers, or none with --run-controllers=false: remove the flag",
}

// replacedOfViews are those of kcp virtual-workspaces.
var replacedOfViews = map[string]string{
	"kubeconfig": "kcp virtual-workspaces reads the etcd of its shard: use --etcd-servers and the other flags of the shard instead",
}

// addUnused adds the flags of upstream's kcp that have no purpose here.
func (o *Options) addUnused(fs *pflag.FlagSet) {
	for name, reason := range unused {
		fs.String(name, "", "Accepted, and not used: "+reason+".")
	}
	refuse := maps.Clone(replaced)
	if o.OnlyVirtualWorkspaces {
		maps.Copy(refuse, replacedOfViews)
	}
	for name, reason := range refuse {
		fs.Var(refused(reason), name, "Not accepted: "+reason+".")
		fs.Lookup(name).NoOptDefVal = "true" // the reason matters more than a missing value
	}
}

// refused is the value of a flag that is not accepted, for a reason.
type refused string

// String implements pflag.Value.
func (refused) String() string { return "" }

// Set implements pflag.Value.
func (r refused) Set(string) error { return errors.New(string(r)) }

// Type implements pflag.Value.
func (refused) Type() string { return "string" }

// unusedWarnings returns a warning for each flag of a command line that is not used.
func unusedWarnings(flags *pflag.FlagSet) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		if flags.Changed(name) {
			warnings = append(warnings, fmt.Sprintf("--%s is not used: %s", name, unused[name]))
		}
	}
	return warnings
}
