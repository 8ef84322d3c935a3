// Package retry decides how soon controllers of the operator try again after an error.
package retry

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	first   = 5 * time.Millisecond
	longest = time.Minute
)

// Options returns the options of a controller. The delay after an error doubles up to a minute. With the 16
// minutes that are the default of the library, objects would stay behind for as long as an API server was away.
func Options() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, longest)}
}
