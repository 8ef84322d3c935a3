package options

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Batteries are what an installation starts with, besides what it needs.
const (
	// BatteryAdmin makes the administrators' users, and their kubeconfig.
	BatteryAdmin = "admin"
	// BatteryUser makes a user without any right, and its context in the kubeconfig.
	BatteryUser = "user"
	// BatteryWorkspaceTypes makes the types organization and team in root.
	BatteryWorkspaceTypes = "workspace-types"
	// BatteryMetricsViewer makes a service account in root that may read the metrics.
	BatteryMetricsViewer = "metrics-viewer"
)

var (
	batteries        = []string{BatteryAdmin, BatteryMetricsViewer, BatteryUser, BatteryWorkspaceTypes}
	defaultBatteries = []string{BatteryAdmin, BatteryWorkspaceTypes}
)

// parseBatteries returns the set that a list means: either the batteries themselves, or what to add to the defaults, as
// "+name", and to take from them, as "-name".
func parseBatteries(list []string) (sets.Set[string], error) {
	chosen, relative := sets.New[string](), 0
	for _, item := range list {
		if strings.HasPrefix(item, "+") || strings.HasPrefix(item, "-") {
			relative++
		}
	}
	switch {
	case relative > 0 && relative < len(list):
		return nil, fmt.Errorf("--batteries-included: %s: either name all batteries, or change the defaults (%s) with +name and -name",
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
			return nil, fmt.Errorf("--batteries-included: there is no battery %q; there are %s", name, strings.Join(batteries, ", "))
		}
		if strings.HasPrefix(item, "-") {
			chosen.Delete(name)
		} else {
			chosen.Insert(name)
		}
	}
	return chosen, nil
}
