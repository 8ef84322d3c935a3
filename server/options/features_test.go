package options

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
)

func TestFeatureGatesOfKCPAreAcceptedWithAWarning(t *testing.T) {
	for given, want := range map[string]struct {
		warnings []string
		err      string
	}{
		"": {},
		"WorkspaceMounts=true,CacheAPIs=true,WorkspaceAuthentication=true,LogicalClusterMigration=true": {warnings: []string{
			"CacheAPIs is always on", "WorkspaceAuthentication is always on", "WorkspaceMounts is always on", "LogicalClusterMigration has no effect",
		}},
		"LogicalClusterMigration=false":                       {},
		"WorkspaceMounts=false":                               {err: "feature is locked to true"},
		"EnableDeprecatedAPIExportVirtualWorkspacesUrls=true": {warnings: []string{"EnableDeprecatedAPIExportVirtualWorkspacesUrls has no effect"}},
	} {
		gates := featuregate.NewFeatureGate()
		AddFeatures(gates)
		flags := pflag.NewFlagSet("kcp", pflag.ContinueOnError)
		values := map[string][]string{}
		flags.Var(flag.NewColonSeparatedMultimapStringStringAllowDefaultEmptyKey(&values), "feature-gates", "")
		if given != "" {
			if err := flags.Parse([]string{"--feature-gates=" + given}); err != nil {
				t.Fatal(err)
			}
		}
		err := gates.Set(given)
		if (err == nil) != (want.err == "") || (err != nil && !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%s: got %v, want %q", given, err, want.err)
		}
		if err != nil {
			continue
		}
		got := New().Warnings(flags, gates)
		if !slices.EqualFunc(got, want.warnings, strings.Contains) {
			t.Errorf("%s: warnings %q, want %q", given, got, want.warnings)
		}
	}
}

func TestAnAuditBackendWithoutAPolicyCausesAWarning(t *testing.T) {
	o := New()
	o.Generic.Audit.LogOptions.Path = "-"
	if got := o.Warnings(pflag.NewFlagSet("kcp", pflag.ContinueOnError), featuregate.NewFeatureGate()); len(got) != 1 || !strings.Contains(got[0], "--audit-policy-file") {
		t.Errorf("got %q", got)
	}
}
