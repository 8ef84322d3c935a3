package tunnel

import "k8s.io/apimachinery/pkg/util/sets"

// Subresources are those of pods for which requests pass a tunnel.
var Subresources = sets.New("log", "exec", "attach", "portforward")
