package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// Limits for the content of a response.
const (
	// maxPatchOperations is the limit of upstream for patches of clients.
	maxPatchOperations = 10000
	maxStatusBytes     = 16 << 10
	maxAnnotationBytes = 64 << 10
	// checkedBytes is the size from which a response is checked. A smaller one cannot exceed the other limits.
	checkedBytes = 16 << 10
)

// WebhookLimits are the limits for calls to admission webhooks. A response may replace the whole object by a patch, encoded in base64. A
// request contains at most two objects. Webhooks that enlarge an object one after the other cannot exceed the limit of a request.
var WebhookLimits = outbound.Limits{Bytes: 1 << 20, Factor: 2, Sent: 16 << 20, Time: 35 * time.Second, Check: checkReview}

// checkReview refuses the AdmissionReview of a response if a part of it exceeds its limit.
func checkReview(content []byte) error {
	if len(content) < checkedBytes {
		return nil
	}
	var review struct {
		Response struct {
			Patch            []byte
			AuditAnnotations map[string]string
			Status           json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &review); err != nil {
		return fmt.Errorf("the response is not an AdmissionReview: %w", err)
	}
	annotations := 0
	for key, value := range review.Response.AuditAnnotations {
		annotations += len(key) + len(value)
	}
	switch status := len(review.Response.Status); {
	case status > maxStatusBytes:
		return fmt.Errorf("response.status has %d bytes, the limit is %d", status, maxStatusBytes)
	case annotations > maxAnnotationBytes:
		return fmt.Errorf("response.auditAnnotations has %d bytes, the limit is %d", annotations, maxAnnotationBytes)
	}
	return checkPatch(review.Response.Patch)
}

// checkPatch refuses a patch with too many operations. It decodes them one by one.
func checkPatch(patch []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(patch))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return nil // upstream returns the error
	}
	var operation json.RawMessage
	for n := 1; decoder.More(); n++ {
		if n > maxPatchOperations {
			return fmt.Errorf("response.patch has more than %d operations, which is the limit", maxPatchOperations)
		}
		if err := decoder.Decode(&operation); err != nil {
			return nil
		}
	}
	return nil
}
