package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"
)

// alwaysOn are the feature gates of kcp whose features cannot be switched off. The server accepts a command line that switches them on.
var alwaysOn = []featuregate.Feature{"CacheAPIs", "WorkspaceAuthentication", "WorkspaceMounts"}

// withoutEffect are the feature gates of kcp whose features do not exist, with the reason.
var withoutEffect = map[featuregate.Feature]string{
	"EnableDeprecatedAPIExportVirtualWorkspacesUrls": "status.virtualWorkspaces of an APIExport stays empty; read the URLs from an " +
		"APIExportEndpointSlice",
	"LogicalClusterMigration": "the shards of an installation move logical clusters without it",
}

// AddFeatures adds the feature gates of kcp to gates.
func AddFeatures(gates featuregate.MutableFeatureGate) {
	known := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, name := range alwaysOn {
		known[name] = featuregate.FeatureSpec{Default: true, LockToDefault: true, PreRelease: featuregate.Beta}
	}
	for name := range withoutEffect {
		known[name] = featuregate.FeatureSpec{Default: false, PreRelease: featuregate.Alpha}
	}
	utilruntime.Must(gates.Add(known))
}

// Warnings returns a warning for each flag of a command line that has no effect.
func (o *Options) Warnings(flags *pflag.FlagSet, gates featuregate.FeatureGate) []string {
	warnings := append(featureWarnings(flags, gates), unusedWarnings(flags)...)
	audit := o.Generic.Audit
	if audit.PolicyFile == "" && (audit.LogOptions.Path != "" || audit.WebhookOptions.ConfigFile != "") {
		warnings = append(warnings,
			"--audit-log-path and --audit-webhook-config-file have no effect without --audit-policy-file, which selects the events to record")
	}
	return warnings
}

func featureWarnings(flags *pflag.FlagSet, gates featuregate.FeatureGate) []string {
	flag := flags.Lookup("feature-gates")
	if flag == nil || !flag.Changed {
		return nil
	}
	given := flag.Value.String()
	var warnings []string
	for _, name := range alwaysOn {
		if strings.Contains(given, string(name)+"=") {
			warnings = append(warnings, fmt.Sprintf("--feature-gates: %s is always on in this server; you can remove the gate", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(withoutEffect)) {
		if gates.Enabled(name) {
			warnings = append(warnings, fmt.Sprintf("--feature-gates: %s has no effect: %s", name, withoutEffect[name]))
		}
	}
	return warnings
}
