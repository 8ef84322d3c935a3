package options

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Batteries are optional objects that an installation starts with.
const (
	// BatteryAdmin creates the users of the administrators, and their kubeconfig.
	BatteryAdmin = "admin"
	// BatteryUser creates a user without permissions, and a context for it in the kubeconfig.
	BatteryUser = "user"
	// BatteryWorkspaceTypes creates the types organization and team in root.
	BatteryWorkspaceTypes = "workspace-types"
	// BatteryMetricsViewer creates a service account in root that may read the metrics.
	BatteryMetricsViewer = "metrics-viewer"
)

var (
	batteries        = []string{BatteryAdmin, BatteryMetricsViewer, BatteryUser, BatteryWorkspaceTypes}
	defaultBatteries = []string{BatteryAdmin, BatteryWorkspaceTypes}
)

// parseBatteries returns the batteries of a list. The list either names all batteries, or changes the defaults: "+name" adds a battery and
// "-name" removes one.
func parseBatteries(list []string) (sets.Set[string], error) {
	chosen, relative := sets.New[string](), 0
	for _, item := range list {
		if strings.HasPrefix(item, "+") || strings.HasPrefix(item, "-") {
			relative++
		}
	}
	switch {
	case relative > 0 && relative < len(list):
		return nil, fmt.Errorf("--batteries-included: %s: either list all batteries, or change the defaults (%s) with +name and -name",
			strings.Join(list, ","), strings.Join(defaultBatteries, ","))
	case relative > 0:
		chosen.Insert(defaultBatteries...)
	}
	for _, item := range list {
		name := item
		if strings.HasPrefix(item, "+") || strings.HasPrefix(item, "-") {
			name = item[1:]
		}
		if !slices.Contains(batteries, name) {
			return nil, fmt.Errorf("--batteries-included: unknown battery %q, must be one of %s", name, strings.Join(batteries, ", "))
		}
		if strings.HasPrefix(item, "-") {
			chosen.Delete(name)
		} else {
			chosen.Insert(name)
		}
	}
	return chosen, nil
}
