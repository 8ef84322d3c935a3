package scheduling

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// The labels of a LogicalCluster for the remaining steps.
const (
	initializerPrefix = "initializer.internal.kcp.io/"
	terminatorPrefix  = "terminator.internal.kcp.io/"
	maxLabelLength    = 63
)

// stepLabel returns the label of a step: a hash, truncated in the key to the maximum length of a key.
func stepLabel(prefix, id string) (key, value string) {
	sum := sha256.Sum224([]byte(id))
	value = hex.EncodeToString(sum[:])
	return prefix + value[:maxLabelLength-len(prefix)], value
}

// InitializerLabel returns the label that a LogicalCluster has while an initializer remains.
func InitializerLabel(id corev1alpha1.LogicalClusterInitializer) (key, value string) {
	return stepLabel(initializerPrefix, string(id))
}

// TerminatorLabel returns the label that a LogicalCluster has while a terminator remains.
func TerminatorLabel(id corev1alpha1.LogicalClusterTerminator) (key, value string) {
	return stepLabel(terminatorPrefix, string(id))
}

// SetLabels sets the labels of a LogicalCluster according to its status.
func SetLabels(lc *corev1alpha1.LogicalCluster) {
	labels := maps.Clone(lc.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return strings.HasPrefix(key, initializerPrefix) || strings.HasPrefix(key, terminatorPrefix)
	})
	labels[corev1alpha1.PhaseLabel] = string(lc.Status.Phase)
	for _, id := range lc.Status.Initializers {
		key, value := InitializerLabel(id)
		labels[key] = value
	}
	for _, id := range lc.Status.Terminators {
		key, value := TerminatorLabel(id)
		labels[key] = value
	}
	lc.Labels = labels
}
