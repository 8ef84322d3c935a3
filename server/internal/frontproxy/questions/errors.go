package questions

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unavailable returns the error for a workspace whose place cannot be found now.
func unavailable(why string) error {
	return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "", schema.GroupResource{}, "",
		"the workspace cannot be found now, because "+why, 1, true)
}
